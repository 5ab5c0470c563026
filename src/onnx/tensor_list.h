// Lists every tensor in a model, including those in attributes, subgraphs, functions and training
// info.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onnx/function_attributes.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A tensor in a model. `proto` points into the ModelProto, which must outlive this object, or into
// `detached`.
struct ListedTensor {
  const onnx::TensorProto* proto = nullptr;
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  // The name of the tensor, which in a valid model is unique among the tensors of the same graph
  // and place. An initializer has its own name, and a sparse initializer has the names "NAME" and
  // "NAME.indices". A tensor in an attribute is named "OUTPUT.ATTRIBUTE", where OUTPUT is the first
  // output of the node, followed by ".N" in a list and ".indices" for sparse indices. For the
  // default value of a function's attribute, OUTPUT is "DOMAIN::FUNCTION". If several functions use
  // the same names inside, "#2" and so on is appended.
  std::string name;
  std::string value;  // name by which nodes read it: that of the initializer, or the first output
                      // of the node
  // Owns the tensor if it is not part of the ModelProto.
  std::shared_ptr<DetachedAttribute> detached = {};
  bool in_training = false;  // true if it is in ModelProto.training_info

  [[nodiscard]] bool is_initializer() const { return place == TensorPlace::kInitializer; }
};

// Lists the tensors graph by graph: first the initializers of a graph, then its sparse
// initializers, then the tensors in its nodes; a subgraph is listed when its node is reached.
// Graphs are numbered as in Slot::graph, followed by those of functions and of training info. Fails
// with kUnsupported beyond kMaxGraphDepth, and with kCorrupt as for function_attributes().
[[nodiscard]] Result<std::vector<ListedTensor>> list_tensors(const onnx::ModelProto& model);

[[nodiscard]] inline bool is_external(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

[[nodiscard]] inline Shape dims_of(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

}  // namespace onnx_external
