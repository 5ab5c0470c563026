// Connects the processes that mpirun started to a team (onnx_external/team.h) that writes one save.
#pragma once

#include <functional>
#include <memory>

#include "onnx_external/team.h"

namespace onnx_external {

struct MpiTeam {
  Team team;
  // The number of threads for which mpirun assigned CPUs to this process. For the leader, this
  // includes the CPUs of the other processes on its machine, because these wait while the leader
  // verifies.
  int threads = 0;
  bool has_met = false;  // true after the first exchange between the processes
  // Leaves the team, which must not be used afterwards. Returns true if this process must report
  // the result, that is, if it is the leader, or if it failed before the first exchange. In the
  // latter case it ends the other processes, which are waiting for it.
  std::function<bool(bool succeeded)> end;
};

// Joins the team. Returns null if mpirun has not started several processes. If it has, but the
// program was built without MPI, ends the process, because all processes would write the same
// files.
[[nodiscard]] std::unique_ptr<MpiTeam> join_team();

}  // namespace onnx_external
