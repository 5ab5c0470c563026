// Data that a model has in files of its own.
#pragma once

#include <memory>

#include "base/file.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The file that holds the bytes of the tensor. kCorrupt when they are not inside it; errors as
// open_beneath().
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_external(
    const Model& model, const ExternalTensor& external);

}  // namespace onnx_external
