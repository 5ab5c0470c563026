// All values of a model's main graph and its subgraphs, with the nodes that make and read them.
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

// The place of a value among the inputs of a node.
struct ValueReader {
  std::uint32_t node = kNoProducer;  // index into WeightGraph::nodes()
  std::uint32_t input = 0;
};

struct WeightValue {
  std::string_view name;
  std::uint32_t graph = 0;
  std::uint32_t slot = kNoSlot;
  std::uint32_t producer = kNoProducer;       // kNoProducer: an input, an initializer or undefined
  const onnx::TensorProto* tensor = nullptr;  // the initializer, or what a Constant node holds
  const onnx::GraphProto* output_of = nullptr;  // the graph that gives it to its caller
  bool is_input = false;                        // it is in its graph's list of inputs
};

struct GraphNodeValues {
  const onnx::NodeProto* node = nullptr;
  std::uint32_t graph = 0;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
};

// A snapshot; the model must outlive it. Names are resolved as ONNX does: a subgraph sees the names
// of the graphs around it, unless it defines them itself. Linear in the size of the model.
class WeightGraph {
 public:
  // kUnsupported past kMaxGraphDepth.
  [[nodiscard]] static Result<WeightGraph> of(const Model& model);

  [[nodiscard]] std::span<const GraphNode> graphs() const { return graphs_; }
  // The nodes of each graph are together and in order: first those of the main graph, then those of
  // its subgraphs as list_graphs() lists them.
  [[nodiscard]] std::span<const GraphNodeValues> nodes() const { return nodes_; }
  [[nodiscard]] std::span<const GraphNodeValues> nodes_of(std::uint32_t graph) const;
  [[nodiscard]] std::span<const WeightValue> values() const { return values_; }
  [[nodiscard]] const WeightValue& operator[](ValueId value) const { return values_[value]; }
  [[nodiscard]] std::span<const ValueReader> readers(ValueId value) const;
  [[nodiscard]] ValueId value_of_slot(std::uint32_t slot) const { return slot_values_[slot]; }

  // The value that the name means in the graph; kNoValue if there is none.
  [[nodiscard]] ValueId named(std::uint32_t graph, std::string_view name) const;

  // The INT64 numbers of an initializer or Constant node of one dimension or none, which are at
  // most kMaxIntegers and in the model. Nullopt for other values.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(ValueId value) const;
  // Returns whether a constant has no dimension. Requires: integers() finds it.
  [[nodiscard]] bool is_scalar(ValueId value) const;
  // True for an initializer that is an input as well, so that callers may replace it. Before IR
  // version 4 all are inputs, and none is meant to be replaced.
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
  std::vector<NameMap<ValueId>> names_;  // of each graph
  std::vector<WeightValue> values_;
  std::vector<ValueId> slot_values_;
  std::vector<ValueId> ends_;  // inputs and outputs of all nodes
  std::vector<GraphNodeValues> nodes_;
  std::vector<std::size_t> first_node_;      // of each graph
  std::vector<ValueReader> readers_;         // value by value
  std::vector<std::uint32_t> first_reader_;  // of each value
};

}  // namespace onnx_external
