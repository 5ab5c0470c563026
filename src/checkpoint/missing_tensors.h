// Looks for zeros that a broken download left in the files of a checkpoint.
#pragma once

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Checks the files of all plain tensors whose bytes no CRC-32 protects, as check_is_not_missing()
// does, and adds its notes.
[[nodiscard]] Status check_files(FileContents& contents);

}  // namespace onnx_external
