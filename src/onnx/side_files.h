// Lists files that belong to a model, other than external data, because an attribute of a node
// refers to them.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace onnx_external {

// Returns the files to which ONNX Runtime's EPContext nodes refer, relative to the model's folder,
// sorted and without duplicates. Such nodes occur in models that were compiled for an accelerator
// with embed_mode 0, in any graph or function. The file names may be unsafe. Source: ONNX Runtime's
// "EP Context Design".
[[nodiscard]] std::vector<std::string> list_side_files(const onnx::ModelProto& model);

}  // namespace onnx_external
