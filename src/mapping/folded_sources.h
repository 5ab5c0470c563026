// Decides whether a value that an exporter's optimizer folded (computed at export) was computed
// from weights.
#pragma once

#include <string_view>

#include "base/name_map.h"
#include "onnx/graph_facts.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Classifies the names in Slot::folded_from. These are the names that values had at export: names
// of weights ("layer1.weight"), and names of constants and of results of operations ("val_12",
// "arange_3"), which do not themselves depend on a weight. `graph` must outlive this object.
class FoldedSources {
 public:
  explicit FoldedSources(const GraphFacts& graph) : graph_(graph) {}

  // Returns false if the name certainly does not belong to a weight, whatever the checkpoint
  // contains: if it is a constant, a buffer that exporters bake in or that no checkpoint contains,
  // or the result of an operation or node.
  [[nodiscard]] bool may_be_weight(std::string_view name);

 private:
  void list_values();

  const GraphFacts& graph_;
  bool is_listed_ = false;
  NameSet no_weights_;  // in the graph: values of nodes, the caller's inputs, constants
};

}  // namespace onnx_external
