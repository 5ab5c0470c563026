// Defines the state of type and shape inference, which is the types of all values in a graph, and
// the interface through which an inference rule reads and refines the types of one node's inputs
// and outputs.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/model.h"

namespace onnx_external {

using ValueId = std::uint32_t;
inline constexpr ValueId kNoValue = 0xFFFFFFFF;  // an optional input or output that is omitted

// The maximum rank of inferred shapes. Without a limit, a node with a million inputs could produce
// a million long shapes.
inline constexpr std::size_t kMaxInferredRank = 8;
inline constexpr std::size_t kMaxNumbers = 64;  // longer constants are not evaluated

struct ValueType {
  bool is_open = false;                // the value is undefined, so its broadcast_limit is used
  std::int32_t elem_type = 0;          // 0 if not known
  std::optional<SymbolicShape> shape;  // the known dimensions
  // For open values, the shape to which the value must broadcast.
  std::optional<SymbolicShape> broadcast_limit;
  // The integers of a small constant, such as a shape, axes or slice ends. A scalar has one
  // integer.
  std::optional<std::vector<std::int64_t>> numbers;
};

struct NodeValues {
  const onnx::NodeProto* node = nullptr;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
};

// The types of all values in a model. A refinement that contradicts known types is ignored, because
// either the model is wrong, or its operators do not have the assumed meaning.
//
// After check(), rules refine only the outputs of the checked node. Their results for the node's
// inputs and outputs are also compared with the known types, to find contradictions.
class ValueTypes {
 public:
  ValueTypes(std::span<const NodeValues> nodes, std::span<ValueType> types);

  [[nodiscard]] std::span<const NodeValues> nodes() const { return nodes_; }
  [[nodiscard]] const ValueType& operator[](ValueId value) const {
    return value == kNoValue ? none_ : types_[value];
  }
  // Returns the node that produces the value, or nullptr.
  [[nodiscard]] const NodeValues* producer(ValueId value) const;
  [[nodiscard]] bool changed() const { return changed_; }
  void forget_changes() { changed_ = false; }

  void refine_type(ValueId value, std::int32_t elem_type);
  void refine_shape(ValueId value, const SymbolicShape& shape);
  void refine_dim(ValueId value, std::size_t axis, std::optional<std::int64_t> size);
  void refine_broadcast_limit(ValueId value, const SymbolicShape& limit);
  void refine_constant_value(ValueId value, std::vector<std::int64_t> numbers);

  // Makes `node` the checked node. Requires: the node is one of nodes().
  void check(const NodeValues& node) { checked_ = &node; }
  [[nodiscard]] bool checks() const { return checked_ != nullptr; }
  // Returns whether a rule has contradicted the known types of a checked node's inputs and outputs.
  [[nodiscard]] bool contradicted() const { return contradicted_; }
  // Records that the inputs of the checked node contradict its operator.
  void contradict() { contradicted_ = contradicted_ || checks(); }
  // Records a contradiction if the shape of the value is known and does not broadcast to the limit.
  void require_broadcast(ValueId value, const SymbolicShape& limit);

 private:
  [[nodiscard]] bool may_refine(ValueId value) const;
  void differ(ValueId value);

  std::span<const NodeValues> nodes_;
  std::span<ValueType> types_;
  std::vector<std::uint32_t> producers_;  // for each value, index into nodes_
  ValueType none_;
  bool changed_ = false;
  const NodeValues* checked_ = nullptr;
  bool contradicted_ = false;
};

// Gives an inference rule access to one node and the types of its values.
class NodeTypes {
 public:
  NodeTypes(const NodeValues& node, ValueTypes& types) : node_(node), types_(types) {}

  [[nodiscard]] const onnx::NodeProto& node() const { return *node_.node; }
  [[nodiscard]] ValueTypes& types() { return types_; }
  [[nodiscard]] std::span<const ValueId> inputs() const { return node_.inputs; }
  [[nodiscard]] std::span<const ValueId> outputs() const { return node_.outputs; }
  [[nodiscard]] ValueId in(std::size_t i) const {
    return i < node_.inputs.size() ? node_.inputs[i] : kNoValue;
  }
  [[nodiscard]] ValueId out(std::size_t i) const {
    return i < node_.outputs.size() ? node_.outputs[i] : kNoValue;
  }
  [[nodiscard]] const std::optional<SymbolicShape>& shape(ValueId value) const {
    return types_[value].shape;
  }
  // Returns the size of an axis, or nullopt if it is not known or the value has no such axis.
  [[nodiscard]] std::optional<std::int64_t> dim(ValueId value, std::size_t axis) const;
  [[nodiscard]] const std::optional<std::vector<std::int64_t>>& numbers(ValueId value) const {
    return types_[value].numbers;
  }
  // Returns an attribute of the node, or nullptr if the node has no such attribute.
  [[nodiscard]] const onnx::AttributeProto* attribute(std::string_view name) const;
  [[nodiscard]] std::int64_t number(std::string_view name, std::int64_t otherwise) const;
  // Returns integers from an attribute or, in later versions of the operator, from an input.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> numbers(std::string_view attribute_name,
                                                                 std::size_t input) const;

 private:
  const NodeValues& node_;
  ValueTypes& types_;
};

// Narrows `limit` so that any shape within it broadcasts to both limits. In a dimension in which
// their sizes differ, the result is 1, the only size that broadcasts to both.
void meet_broadcast_limits(const SymbolicShape& other, SymbolicShape& limit);

// Returns whether the two sizes may be equal. A size of 0 is not compared, because some exporters
// use it for any size.
[[nodiscard]] bool may_be_equal(const std::optional<std::int64_t>& one,
                                const std::optional<std::int64_t>& other);

// Converts an axis that may count from the end to an axis that counts from the start. Returns
// nullopt if it is out of range.
[[nodiscard]] std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank);

// Converts the axes in a list like axis_of(), keeping their order. Returns nullopt if an axis is
// out of range or listed twice.
[[nodiscard]] std::optional<std::vector<std::size_t>> axes_of(const std::vector<std::int64_t>& axes,
                                                              std::size_t rank);

}  // namespace onnx_external
