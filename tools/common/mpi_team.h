// Joins the processes that mpirun started into a team (onnx_external/team.h), which writes one save
// together.
#pragma once

#include <functional>
#include <memory>

#include "onnx_external/team.h"

namespace onnx_external {

struct MpiTeam {
  Team team;
  // The number of threads for which mpirun assigned CPUs to this process. For the leader, the CPUs
  // of all processes on its machine count, because the other processes wait while it verifies.
  int threads = 0;
  bool has_met = false;  // the processes have made an exchange
  // Leaves the team, which must not be used afterwards. Returns true if this process must report
  // the outcome, that is, if it is the leader, or failed before the first exchange. In the latter
  // case it ends the other processes, which wait for it.
  std::function<bool(bool succeeded)> end;
};

// Returns null if this process is not one of several that mpirun started. If it is one of several,
// but the program was built without MPI, ends the process, because otherwise all processes would
// write the same files.
[[nodiscard]] std::unique_ptr<MpiTeam> join_team();

}  // namespace onnx_external
