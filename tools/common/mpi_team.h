// The processes that mpirun started, as a team (onnx_external/team.h). A build without MPI never
// has one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onnx_external/team.h"

namespace onnx_external {

class MpiTeam final : public Team {
 public:
  // Null if this process is not one of several that mpirun started. If it is, but the program was
  // built without MPI, ends the process, because all processes would write the same files.
  [[nodiscard]] static std::unique_ptr<MpiTeam> join();

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<std::string> from_all(std::string text) override;

  // How many threads use the CPUs that mpirun gave to this process. The leader may use those of all
  // processes on its machine: they wait while it verifies.
  [[nodiscard]] int threads() const { return threads_; }

  // Leaves the team, which must not be used afterwards. Returns true if this process has to report
  // the outcome: the leader, or a process that failed before the first exchange. Such a process
  // ends the others, which wait for it.
  [[nodiscard]] bool end(bool succeeded);

 private:
  MpiTeam() = default;
  int rank_ = 0;
  int size_ = 1;
  int threads_ = 0;
  bool has_met_ = false;
};

}  // namespace onnx_external
