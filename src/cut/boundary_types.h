// Determines the types and shapes of the inputs and outputs of a piece that is cut out of a model.
#pragma once

#include <onnx/onnx_pb.h>

#include <vector>

#include "base/name_map.h"
#include "cut/value_graph.h"

namespace onnx_external {

// Looks up or infers the types of values in the main graph. The graph must outlive this object.
class BoundaryTypes {
 public:
  explicit BoundaryTypes(const ValueGraph& graph);

  // Returns the ValueInfoProto that the graph states for the value, with symbolic dimensions and
  // metadata. If the graph states none, the result has the type and shape of the value's
  // initializer. If there is no initializer, it has the element type that follows from the
  // operators that read or compute the value. If no type follows, it has only the name.
  [[nodiscard]] onnx::ValueInfoProto of(ValueId value);

 private:
  void infer();

  const ValueGraph& graph_;
  NameMap<const onnx::ValueInfoProto*> stated_;
  std::vector<std::int32_t> inferred_;  // by ValueId; empty until it is needed
};

}  // namespace onnx_external
