// The types of a piece's inputs and outputs.
#pragma once

#include <onnx/onnx_pb.h>

#include <vector>

#include "base/name_map.h"
#include "cut/value_graph.h"

namespace onnx_external {

// What a model says about the values of its main graph. Refers to the graph.
class BoundaryTypes {
 public:
  explicit BoundaryTypes(const ValueGraph& graph);

  // What the graph states, with symbolic dimensions and metadata. Else the type and shape of the
  // initializer, else an element type that the operators around the value imply, else only the
  // name.
  [[nodiscard]] onnx::ValueInfoProto of(ValueId value);

 private:
  void infer();

  const ValueGraph& graph_;
  NameMap<const onnx::ValueInfoProto*> stated_;
  std::vector<std::int32_t> inferred_;  // by ValueId; empty until it is needed
};

}  // namespace onnx_external
