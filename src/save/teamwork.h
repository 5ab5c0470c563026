// The steps of a save that several processes take together (team.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/team.h"
#include "save/plan_copier.h"

namespace onnx_external {

// What one process knows of its team. Without a team, or in a team of one, it leads, owns all
// parts, and sends nothing. One thread at a time.
class Teamwork {
 public:
  explicit Teamwork(Team* team) : team_(team != nullptr && team->size() > 1 ? team : nullptr) {}
  Teamwork(const Teamwork&) = delete;
  Teamwork& operator=(const Teamwork&) = delete;

  [[nodiscard]] bool is_alone() const { return team_ == nullptr; }
  [[nodiscard]] bool leads() const { return is_alone() || team_->rank() == 0; }

  // kInvalidArgument, in all processes, unless all are about to write the same job.
  [[nodiscard]] Status agree(const std::string& job);

  // Sends the leader's text or error to all processes, and returns it.
  [[nodiscard]] Result<std::string> broadcast(Result<std::string> mine);
  [[nodiscard]] Status broadcast(Status mine);

  // Which parts other processes write; empty for a process that is alone. Each process has a
  // run of parts, with about the same number of bytes.
  [[nodiscard]] std::vector<bool> parts_of_others(const SavePlan& plan) const;

  // The files that have parts of several processes: the leader makes them before anyone writes.
  [[nodiscard]] std::vector<std::uint32_t> shared_files(const SavePlan& plan) const;

  // Joins what the processes have copied. If one failed, all get the error of the lowest rank that
  // did. SHA-1s of shared files are not known yet.
  [[nodiscard]] Result<CopiedFiles> join(const SavePlan& plan, Result<CopiedFiles> mine);

 private:
  [[nodiscard]] std::vector<int> owners(const SavePlan& plan) const;  // of the parts
  Team* team_;
};

}  // namespace onnx_external
