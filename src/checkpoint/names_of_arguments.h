// Handles tensor names that occur in several checkpoint arguments: this is an error unless the
// caller asked for an overlay, in which the last argument wins.
#pragma once

#include <span>
#include <string>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// `arguments`: how messages refer to the arguments, by the indices in `contents.arguments`. With
// `overlay`, a tensor whose name also occurs in a later argument is dropped and noted. Names within
// one argument are unique already. Errors: kAmbiguous.
[[nodiscard]] Status check_names(CheckpointAccess::Contents& contents,
                                 std::span<const std::string> arguments, bool overlay);

}  // namespace onnx_external
