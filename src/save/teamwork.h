// Performs the work of one process in a save that several processes write together (team.h). The
// process copies its share of the ranges, and treats all other ranges as done.
#pragma once

#include "base/progress_meter.h"
#include "onnx_external/team.h"
#include "save/plan_copier.h"

namespace onnx_external {

// Returns, in all processes, the text or error that the leader passes as `mine`. `mine` is ignored
// in all other processes.
[[nodiscard]] Result<std::string> from_leader(const Team& team, const Result<std::string>& mine);

// Copies this process's share of the ranges, and returns the combined results of all processes. If
// a process fails or calls give_up(), all processes return its error. Only the leader gets SHA-1s.
[[nodiscard]] Result<CopiedFiles> copy_share(const Team& team, const CopyJob& job,
                                             ProgressMeter& meter);

// Passes an error to the other processes. A process that cannot copy must call this function
// instead of copy_share(). Returns the error that all processes return.
[[nodiscard]] Error give_up(const Team& team, const Error& error);

}  // namespace onnx_external
