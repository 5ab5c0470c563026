// What a process does for a save that a team carries out (team.h): it copies its share of the parts
// and treats the others as done.
#pragma once

#include <string>

#include "base/progress_meter.h"
#include "onnx_external/team.h"
#include "save/plan_copier.h"

namespace onnx_external {

// The leader's text or error, in all processes.
[[nodiscard]] Result<std::string> from_leader(Team& team, const Result<std::string>& mine);

// Copies this process's share of the parts, and returns what all have copied. If one failed, or has
// given up, all get its error. Only the leader gets SHA-1s.
[[nodiscard]] Result<CopiedFiles> copy_share(Team& team, const CopyJob& job, ProgressMeter& meter);

// To be called instead: tells the others why. Returns the error that all get.
[[nodiscard]] Error give_up(Team& team, const Error& error);

}  // namespace onnx_external
