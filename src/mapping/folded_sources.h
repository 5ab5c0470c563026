// Decides whether a value that an exporter's optimizer folded (computed at export) depends on
// weights.
#pragma once

#include <string_view>

#include "base/name_map.h"
#include "onnx/graph_facts.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Classifies the names in Slot::folded_from, which are names of values at export. Some are names of
// weights ("layer1.weight"); others are names of constants and of results of operations ("val_12",
// "arange_3"), which do not depend on a weight. `graph` must outlive this object.
class FoldedSources {
 public:
  explicit FoldedSources(const GraphFacts& graph) : graph_(graph) {}

  // Returns false if the name cannot belong to a weight of any checkpoint. Such names are those of
  // constants, of buffers that exporters store in graphs or that no checkpoint contains, and of
  // results of operations or nodes.
  [[nodiscard]] bool may_be_weight(std::string_view name);

 private:
  void list_values();

  const GraphFacts& graph_;
  bool is_listed_ = false;
  NameSet no_weights_;  // names of node outputs, inputs of the caller, and constants
};

}  // namespace onnx_external
