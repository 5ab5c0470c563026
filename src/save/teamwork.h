// Does the work of one process in a save by a team (team.h): copies its share of the ranges, and
// treats the others as done.
#pragma once

#include "base/progress_meter.h"
#include "onnx_external/team.h"
#include "save/plan_copier.h"

namespace onnx_external {

// Returns the leader's text or error in all processes. Only the leader's `mine` counts.
[[nodiscard]] Result<std::string> from_leader(const Team& team, const Result<std::string>& mine);

// Copies this process's share of the ranges, and returns the results of all processes. If one of
// them fails or calls give_up(), all return its error. Only the leader gets SHA-1s.
[[nodiscard]] Result<CopiedFiles> copy_share(const Team& team, const CopyJob& job,
                                             ProgressMeter& meter);

// A process that cannot copy calls this instead of copy_share(), so that the others learn why.
// Returns the error that all processes return.
[[nodiscard]] Error give_up(const Team& team, const Error& error);

}  // namespace onnx_external
