// Lists files that nodes refer to in an attribute. They lie beside the model, but are not external
// data.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace onnx_external {

// The files that EPContext nodes of ONNX Runtime name (a model that was compiled for an
// accelerator, with embed_mode 0), relative to the model's folder, sorted, each once. They may be
// in any graph or function; the names may be unsafe. Source: ONNX Runtime's "EP Context Design".
[[nodiscard]] std::vector<std::string> list_side_files(const onnx::ModelProto& model);

}  // namespace onnx_external
