// Reading a ModelProto from a file, with messages for what people give by mistake.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>

#include "onnx_external/result.h"

namespace onnx_external {

// Parses straight from the file, so that its bytes are held once. Errors as Model::load.
[[nodiscard]] Result<onnx::ModelProto> load_model_proto(const std::filesystem::path& path);

}  // namespace onnx_external
