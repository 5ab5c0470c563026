// Handles tensor names that occur in several arguments: an error, or the last argument wins.
#pragma once

#include <span>
#include <string>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// `arguments`: what messages call them, by the numbers in `contents.arguments`. With `overlay`,
// tensors whose name occurs in a later argument are dropped and noted. Within one argument names
// are unique already. kAmbiguous.
[[nodiscard]] Status check_names(CheckpointAccess::Contents& contents,
                                 std::span<const std::string> arguments, bool overlay);

}  // namespace onnx_external
