// Lists files other than external data that belong to a model because an attribute of a node refers
// to them.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace onnx_external {

// Returns the files to which ONNX Runtime's EPContext nodes refer (in a model that was compiled for
// an accelerator, with embed_mode 0), relative to the model's folder, sorted and without
// duplicates. The nodes may be in any graph or function, and the names may be unsafe. Source: ONNX
// Runtime's "EP Context Design".
[[nodiscard]] std::vector<std::string> list_side_files(const onnx::ModelProto& model);

}  // namespace onnx_external
