// The processes that mpirun started, as a team (onnx_external/team.h). In a build without MPI there
// is never one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onnx_external/team.h"

namespace onnx_external {

class MpiTeam final : public Team {
 public:
  // Null when this process is not one of several that mpirun started. Ends the process when it is,
  // and the program was built without MPI: all would write the same.
  [[nodiscard]] static std::unique_ptr<MpiTeam> join();

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string from_leader(std::string text) override;
  [[nodiscard]] std::vector<std::string> from_all(std::string text) override;

  // Leaves the team: its last use. True when this process has to say how it went: the leader, and
  // one that fails before the processes have met. That one ends the others, which wait for it.
  [[nodiscard]] bool end(bool succeeded);

 private:
  MpiTeam(int rank, int size) : rank_(rank), size_(size) {}
  int rank_;
  int size_;
  bool has_met_ = false;
};

}  // namespace onnx_external
