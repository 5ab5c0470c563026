// Determines the types and shapes of the inputs and outputs of a piece that is cut out of a model.
#pragma once

#include <onnx/onnx_pb.h>

#include <vector>

#include "base/name_map.h"
#include "cut/value_graph.h"

namespace onnx_external {

// Looks up types of values of the main graph, or infers them. The graph must outlive this object.
class BoundaryTypes {
 public:
  explicit BoundaryTypes(const ValueGraph& graph);

  // Returns the ValueInfoProto that the graph states for the value, with symbolic dimensions and
  // metadata. If there is none, the result has the type and shape of the initializer, or else an
  // element type implied by the operators that read or compute the value, or else only the name.
  [[nodiscard]] onnx::ValueInfoProto of(ValueId value);

 private:
  void infer();

  const ValueGraph& graph_;
  NameMap<const onnx::ValueInfoProto*> stated_;
  std::vector<std::int32_t> inferred_;  // by ValueId; empty until it is needed
};

}  // namespace onnx_external
