// Lists every tensor in a model, wherever it is.
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

// A tensor of a model. Points into the ModelProto, which must outlive it, or into `detached`.
struct ListedTensor {
  const onnx::TensorProto* proto = nullptr;
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  // Unique among the tensors of its graph and place, in a valid model: an initializer's own name;
  // "NAME" and "NAME.indices" of a sparse one; "OUTPUT.ATTRIBUTE" of an attribute, by the first
  // output of its node, with ".N" in a list and ".indices" of sparse indices; the default value of
  // a function's attribute has "DOMAIN::FUNCTION" as its output. "#2" and so on are added where
  // functions use the same names inside.
  std::string name;
  std::string value;  // what nodes see: the initializer's name, or the first output of the node
  std::shared_ptr<DetachedAttribute> detached = {};  // owns the tensor if the ModelProto does not
  bool in_training = false;                          // in ModelProto.training_info

  [[nodiscard]] bool is_initializer() const { return place == TensorPlace::kInitializer; }
};

// Lists graph by graph: first the initializers of a graph, then its sparse initializers, then the
// tensors in its nodes; a subgraph is listed in the place of its node. Graphs are numbered like
// Slot::graph, followed by those of functions and training. kUnsupported past kMaxGraphDepth;
// kCorrupt as for function_attributes().
[[nodiscard]] Result<std::vector<ListedTensor>> list_tensors(const onnx::ModelProto& model);

[[nodiscard]] inline bool is_external(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

[[nodiscard]] inline Shape dims_of(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

}  // namespace onnx_external
