// Detects checkpoint files in which a broken download left zeros instead of data.
#pragma once

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Checks the files of all plain tensors whose bytes are not protected by a CRC-32, as
// check_is_not_missing() does, and adds its notes to the contents.
[[nodiscard]] Status check_files(FileContents& contents);

}  // namespace onnx_external
