// Puts tensors that were written for a model into its graph.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

using AddedInitializers = std::map<std::string, onnx::TensorProto, std::less<>>;  // by name

// Makes each tensor an initializer of the main graph: replaces the data of an initializer with its
// name, or appends a new one, in the order of the names. From IR version 4 on, also removes inputs
// with these names. kMismatch if the graph states another type or shape for a tensor.
[[nodiscard]] Status put_initializers(const AddedInitializers& added, onnx::ModelProto& model);

}  // namespace onnx_external
