// Sources of the bytes of tensors in a part that is not yet complete.
#pragma once

#include <memory>

#include "checkpoint/storage/file_contents.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Reads bytes of the contiguous, little-endian, row-major tensor. It keeps the file and `inflated`
// alive and stays valid when `part` is destroyed.
[[nodiscard]] ReadSource view_source(const FileContents& part, const TensorView& view,
                                     std::shared_ptr<InflatedStorages> inflated);

}  // namespace onnx_external
