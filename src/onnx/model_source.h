// Opens the files that hold a model's external data.
#pragma once

#include <memory>

#include "base/file.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Opens the file that holds the bytes of the tensor. Fails with kCorrupt if the file does not
// contain the whole range. Other errors as for open_data_file().
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_external(
    const Model& model, const ExternalTensor& external);

}  // namespace onnx_external
