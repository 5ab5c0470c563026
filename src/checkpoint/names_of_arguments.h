// Handles tensor names that occur in several checkpoint arguments. This is an error, unless the
// caller asked for an overlay, in which the tensor of the last argument is used.
#pragma once

#include <span>
#include <string>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fails with kAmbiguous if a name occurs in several arguments. With `overlay`, does not fail, but
// drops the tensors whose names also occur in a later argument, and records them. `arguments` are
// the names of the arguments for messages; contents.arguments has indices into this list. Requires:
// names within one argument are unique.
[[nodiscard]] Status check_names(CheckpointAccess::Contents& contents,
                                 std::span<const std::string> arguments, bool overlay);

}  // namespace onnx_external
