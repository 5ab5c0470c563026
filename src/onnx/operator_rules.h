// Lists the operators of ONNX's default domain for which types and shapes are inferred, with the
// inference rule of each.
//
// The rules of libonnx (onnx::shape_inference) are not used, for the following reasons (tested with
// version 1.12, which is in Debian, and 1.23):
// - In 1.12, a Conv or MaxPool with a stride of 0 divides by zero, and the signal ends the process.
// - Without data propagation, no shape is known after a Reshape. With data propagation, 26 Concat
//   nodes that double a constant of two numbers need more than 5 GiB and 150 s in both versions.
//   The rules here limit the length of constants (kMaxNumbers).
// - libonnx infers from inputs to outputs only. The rules here also infer weights that a graph
//   leaves open, and the boundaries of cut pieces, from the nodes that read them.
// In 300 test cases, the results were the same with these rules, with libonnx's rules, and without
// any rules, because exporters state the types of weights. Rules are needed for graphs that do not
// state these types (saved with include_initializers=False), in which they detect weights that
// contradict each other. They are also needed for models whose data a Writer writes, and for cut
// pieces.
#pragma once

#include <cstdint>
#include <string_view>

#include "onnx/value_types.h"

namespace onnx_external {

// The inference rule of an operator. In a mask, bit i stands for the i-th input or output, and the
// last bit also for all inputs or outputs after it.
struct OperatorRule {
  std::string_view op;
  std::uint32_t same_inputs = 0;   // these inputs have the same element type
  std::uint32_t same_outputs = 0;  // these outputs have the same element type as the inputs
  std::int32_t output_type = 0;    // type of the first output, for any inputs; 0 = not fixed
  void (*shapes)(NodeTypes& node) = nullptr;
};

// Returns the rule for the operator of a node, or nullptr for operators of other domains and for
// unknown operators.
[[nodiscard]] const OperatorRule* rule_of(const onnx::NodeProto& node);

}  // namespace onnx_external
