// Detects checkpoint files in which an interrupted download left zeros instead of data.
#pragma once

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Calls check_is_not_missing() for the files of all plain tensors without a CRC-32, and adds its
// notes to the contents.
[[nodiscard]] Status check_files(FileContents& contents);

}  // namespace onnx_external
