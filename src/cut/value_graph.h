// Represents the main graph of a model as values and nodes, with the definition of each value and
// the values that each node reads.
//
// Values that a subgraph (a body of If, Loop, Scan) reads from outside count as read by the node
// that owns the subgraph. Memory use is about 60 bytes for each value, and 4 bytes for each input
// and output of a node.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "onnx/value_types.h"
#include "onnx_external/result.h"

namespace onnx_external {

using NodeId = std::uint32_t;  // index into graph.node

enum class ValueSource : std::uint8_t {
  kUndefined,    // nothing defines it
  kInput,        // a graph input without an initializer
  kInitializer,  // may also be the default value of a graph input
  kSparse,       // a sparse initializer
  kNode,
};

struct GraphValue {
  std::string_view name;  // points into the model
  ValueSource source = ValueSource::kUndefined;
  // For kNode, the node; otherwise the index into the list of inputs or initializers that defines
  // the value.
  std::uint32_t index = 0;
};

// The main graph. Immutable. The onnx::GraphProto must outlive this object.
class ValueGraph {
 public:
  // Fails with kCorrupt if a name is defined twice, if the graph has a cycle, or if its nodes are
  // not in topological order. Fails with kUnsupported if subgraphs are nested deeper than
  // kMaxGraphDepth.
  [[nodiscard]] static Result<ValueGraph> of(const onnx::GraphProto& graph);

  [[nodiscard]] const onnx::GraphProto& graph() const { return *graph_; }
  [[nodiscard]] std::size_t node_count() const { return places_.size() - 1; }
  [[nodiscard]] const std::vector<GraphValue>& values() const { return values_; }
  [[nodiscard]] const GraphValue& operator[](ValueId value) const { return values_[value]; }
  [[nodiscard]] std::optional<ValueId> find(std::string_view name) const;

  // Return one entry for each input or output of the node. The entry for an omitted input or output
  // is kNoValue.
  [[nodiscard]] std::span<const ValueId> inputs(NodeId node) const;
  [[nodiscard]] std::span<const ValueId> outputs(NodeId node) const;
  // Returns the inputs of the node, then the outside values that its subgraphs read, without
  // repetitions.
  [[nodiscard]] std::span<const ValueId> reads(NodeId node) const;
  [[nodiscard]] bool is_graph_output(ValueId value) const { return is_output_[value]; }

  // Returns the operator and name of a node for messages, such as "MatMul '/fc/MatMul'". For a node
  // without a name, the name of its output is used.
  [[nodiscard]] std::string node_text(NodeId node) const;

 private:
  struct Place {  // where a node's lists begin in links_; each ends where the next one begins
    std::size_t inputs = 0;
    std::size_t captures = 0;
    std::size_t outputs = 0;
  };

  explicit ValueGraph(const onnx::GraphProto& graph) : graph_(&graph) {}
  [[nodiscard]] Status define_values();
  [[nodiscard]] Status define(std::string_view name, ValueSource source, std::uint32_t index);
  [[nodiscard]] ValueId used(std::string_view name);
  [[nodiscard]] Status link_nodes();
  [[nodiscard]] Status check_order(NodeId node) const;
  void note_outputs();
  [[nodiscard]] std::string definer_text(const GraphValue& value) const;

  const onnx::GraphProto* graph_;
  std::vector<GraphValue> values_;
  NameMap<ValueId> by_name_;
  std::vector<ValueId> links_;
  std::vector<Place> places_;  // one for each node, and one for the end
  std::vector<bool> is_output_;
};

// Returns whether the node owns subgraphs.
[[nodiscard]] bool has_subgraphs(const onnx::NodeProto& node);

// Creates a kNotFound error with the message "WHAT; did you mean 'x', 'y'?", where x and y are the
// names in `known` that are most similar to `name`. Without similar names, the message is only
// `what`.
[[nodiscard]] Error not_found_error(std::string what, std::string_view name,
                                    std::span<const std::string_view> known);

// Creates the kCorrupt error for a node that reads an undefined value.
[[nodiscard]] Error undefined_error(const ValueGraph& graph, NodeId node, ValueId value);

}  // namespace onnx_external
