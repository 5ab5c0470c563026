// Does the work of one process in a save that several processes write together (team.h): copies its
// share of the ranges, and treats the other ranges as done.
#pragma once

#include "base/progress_meter.h"
#include "onnx_external/team.h"
#include "save/plan_copier.h"

namespace onnx_external {

// Returns the leader's text or error in all processes; `mine` is ignored in the other processes.
[[nodiscard]] Result<std::string> from_leader(const Team& team, const Result<std::string>& mine);

// Copies this process's share of the ranges, and returns the combined results of all processes. If
// one of them fails or calls give_up(), all of them return its error. Only the leader gets SHA-1s.
[[nodiscard]] Result<CopiedFiles> copy_share(const Team& team, const CopyJob& job,
                                             ProgressMeter& meter);

// Must be called instead of copy_share() by a process that cannot copy, so that the other processes
// learn why. Returns the error that all processes return.
[[nodiscard]] Error give_up(const Team& team, const Error& error);

}  // namespace onnx_external
