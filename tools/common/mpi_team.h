// The processes that mpirun started, as a team (onnx_external/team.h).
#pragma once

#include <functional>
#include <memory>

#include "onnx_external/team.h"

namespace onnx_external {

struct MpiTeam {
  Team team;
  // How many threads use the CPUs that mpirun gave to this process. The leader may use those of all
  // processes on its machine: they wait while it verifies.
  int threads = 0;
  bool has_met = false;  // in an exchange
  // Leaves the team, which must not be used afterwards. Returns true if this process has to report
  // the outcome: the leader, or a process that failed before the first exchange. Such a process
  // ends the others, which wait for it.
  std::function<bool(bool succeeded)> end;
};

// Null if this process is not one of several that mpirun started. If it is, but the program was
// built without MPI, ends the process, because all processes would write the same files.
[[nodiscard]] std::unique_ptr<MpiTeam> join_team();

}  // namespace onnx_external
