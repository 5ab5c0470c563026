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

// What one process knows of its team. Without a team, or in one of one, it leads and all is its
// own, and nothing is sent. One thread at a time.
class Teamwork {
 public:
  explicit Teamwork(Team* team) : team_(team != nullptr && team->size() > 1 ? team : nullptr) {}
  Teamwork(const Teamwork&) = delete;
  Teamwork& operator=(const Teamwork&) = delete;

  [[nodiscard]] bool is_alone() const { return team_ == nullptr; }
  [[nodiscard]] bool leads() const { return is_alone() || team_->rank() == 0; }

  // kInvalidArgument, in all processes, when they are not about to write the same job.
  [[nodiscard]] Status agree(const std::string& job);

  // The leader's text or error in all processes.
  [[nodiscard]] Result<std::string> hear(Result<std::string> mine);
  [[nodiscard]] Status hear(Status mine);

  // Which parts other processes write. Each process has a run of parts, about the same number of
  // bytes each; empty for one that is alone.
  [[nodiscard]] std::vector<bool> parts_of_others(const SavePlan& plan) const;

  // The files that have parts of several processes: the leader makes them before anyone writes.
  [[nodiscard]] std::vector<std::uint32_t> shared_files(const SavePlan& plan) const;

  // What all have copied together, from what each has; in all processes the error of the lowest
  // rank when one of them failed. SHA-1s of shared files are not known then.
  [[nodiscard]] Result<CopiedFiles> join(const SavePlan& plan, Result<CopiedFiles> mine);

 private:
  [[nodiscard]] std::vector<int> owners(const SavePlan& plan) const;  // of the parts
  Team* team_;
};

}  // namespace onnx_external
