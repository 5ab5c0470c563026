// Selects the nodes of a piece that is cut out of a model, and determines its inputs and outputs.
#pragma once

#include <string>
#include <vector>

#include "cut/value_graph.h"
#include "onnx_external/cut.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct CutSelection {
  std::vector<bool> nodes;       // by NodeId
  std::vector<ValueId> inputs;   // except inputs that have a default value
  std::vector<ValueId> outputs;  // each computed by a node of the piece
  std::vector<ValueId> fed_back;
};

// Both functions select nodes as described in onnx_external/cut.h, and return the errors of
// cut_model(). An empty `module` means the whole model. In the result, each value that a selected
// node reads is an input, the output of a selected node, or an initializer.
[[nodiscard]] Result<CutSelection> select_module(const ValueGraph& graph, const std::string& module,
                                                 const std::vector<std::string>& without);
[[nodiscard]] Result<CutSelection> select_between(const ValueGraph& graph,
                                                  const std::vector<std::string>& inputs,
                                                  const std::vector<std::string>& outputs);

}  // namespace onnx_external
