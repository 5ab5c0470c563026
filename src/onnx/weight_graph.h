// Lists all values of a model's main graph and its subgraphs, with the nodes that produce and read
// them.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "onnx/cut_tensors.h"
#include "onnx/graph_list.h"
#include "onnx/value_types.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::uint32_t kNoProducer = 0xFFFFFFFF;
inline constexpr std::size_t kMaxIntegers = 65536;  // longer constants are not read

// A node that reads a value, and the index of the value among its inputs.
struct ValueReader {
  std::uint32_t node = kNoProducer;  // index into WeightGraph::nodes()
  std::uint32_t input = 0;
};

struct WeightValue {
  std::string_view name;
  std::uint32_t graph = 0;
  std::uint32_t slot = kNoSlot;
  std::uint32_t producer = kNoProducer;  // kNoProducer for inputs, initializers and undefined names
  const onnx::TensorProto* tensor = nullptr;    // the initializer, or the tensor in a Constant node
  const onnx::GraphProto* output_of = nullptr;  // the graph that returns the value as an output
  bool is_input = false;                        // true if the value is an input of its graph
};

struct GraphNodeValues {
  const onnx::NodeProto* node = nullptr;
  std::uint32_t graph = 0;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
};

// The values and nodes of a model, which must outlive this object. Names are resolved as in ONNX: a
// subgraph can use the names of the graphs around it, unless it defines them itself. Construction
// takes linear time in the size of the model.
class WeightGraph {
 public:
  // Fails with kUnsupported for graphs nested deeper than kMaxGraphDepth.
  [[nodiscard]] static Result<WeightGraph> of(const Model& model);

  [[nodiscard]] std::span<const GraphNode> graphs() const { return graphs_; }
  // Returns the nodes, graph by graph and in order: first those of the main graph, then those of
  // its subgraphs in the order of list_graphs().
  [[nodiscard]] std::span<const GraphNodeValues> nodes() const { return nodes_; }
  [[nodiscard]] std::span<const GraphNodeValues> nodes_of(std::uint32_t graph) const;
  [[nodiscard]] std::span<const WeightValue> values() const { return values_; }
  [[nodiscard]] const WeightValue& operator[](ValueId value) const { return values_[value]; }
  [[nodiscard]] std::span<const ValueReader> readers(ValueId value) const;
  [[nodiscard]] ValueId value_of_slot(std::uint32_t slot) const { return slot_values_[slot]; }

  // Returns the value to which a name refers in the graph, or kNoValue if there is none.
  [[nodiscard]] ValueId named(std::uint32_t graph, std::string_view name) const;

  // Returns the integers of an INT64 initializer or Constant node. It must have at most one
  // dimension and at most kMaxIntegers elements, and its data must be in the model itself. Returns
  // nullopt for other values.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(ValueId value) const;
  // Returns whether a constant is a scalar. Requires: integers() returns its value.
  [[nodiscard]] bool is_scalar(ValueId value) const;
  // Returns whether the value is an initializer that is also an input, so that callers may replace
  // it. Before IR version 4, all initializers are inputs, and callers do not replace them.
  [[nodiscard]] bool is_replaceable(ValueId value) const {
    return values_[value].is_input && may_replace_;
  }

 private:
  void define(std::uint32_t graph);
  void assign_slots(const GraphFacts& facts);
  void connect(std::uint32_t graph);
  void list_readers();
  [[nodiscard]] ValueId add(std::uint32_t graph, std::string_view name);
  [[nodiscard]] ValueId resolve(std::uint32_t graph, std::string_view name);

  const CutTensors* cuts_ = nullptr;
  bool may_replace_ = false;
  std::vector<GraphNode> graphs_;
  std::vector<NameMap<ValueId>> names_;  // for each graph
  std::vector<WeightValue> values_;
  std::vector<ValueId> slot_values_;
  std::vector<ValueId> ends_;  // inputs and outputs of all nodes, one node after another
  std::vector<GraphNodeValues> nodes_;
  std::vector<std::size_t> first_node_;      // for each graph
  std::vector<ValueReader> readers_;         // readers of all values, one value after another
  std::vector<std::uint32_t> first_reader_;  // for each value
};

}  // namespace onnx_external
