// Determines what a piece that is cut out of a model needs in addition to its nodes: initializers,
// functions, and inputs with default values.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <vector>

#include "base/name_map.h"
#include "cut/selection.h"
#include "cut/value_graph.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct PieceContent {
  std::vector<bool> carried;    // by ValueId: initializers, dense and sparse
  std::vector<bool> functions;  // by index into ModelProto.functions
  std::vector<bool> is_input;   // by ValueId: CutSelection::inputs
  // Graph inputs whose default value is an initializer of the piece, in the order of the graph.
  std::vector<ValueId> defaulted;

  // Returns whether the piece computes the value, or has it as an initializer or an input.
  [[nodiscard]] bool has(const ValueGraph& graph, const CutSelection& selection,
                         ValueId value) const;
};

// Finds the content of a piece. Functions are found by domain and name, so the piece gets all
// overloads of a name.
[[nodiscard]] PieceContent find_content(const Model& model, const ValueGraph& graph,
                                        const CutSelection& selection);

// Calls visit(tensor) for each tensor of the piece: initializers, and tensors in attributes and
// subgraphs of its nodes and functions.
void for_each_tensor(const Model& model, const ValueGraph& graph, const CutSelection& selection,
                     const PieceContent& content,
                     const std::function<void(const onnx::TensorProto&)>& visit);

}  // namespace onnx_external
