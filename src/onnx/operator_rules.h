// Lists the operators of ONNX's default domain for which types and shapes are inferred, with the
// inference rule of each.
//
// Reasons not to use the rules of libonnx (onnx::shape_inference), measured with version 1.12,
// which Debian has, and 1.23:
// - In 1.12, a Conv or MaxPool with a stride of 0 divides by zero, and the signal ends the process.
// - Without data propagation, nothing is known after a Reshape. With data propagation, 26 Concat
//   nodes that double a constant of two numbers need more than 5 GiB and 150 s in both versions.
//   Here, kMaxNumbers limits constants.
// - libonnx infers from inputs to outputs only. The rules here also infer weights that a graph
//   leaves open, and the boundaries of cut pieces, from the nodes that read them.
// In 300 test cases, libonnx's rules led to the same verdicts, and so did no rules at all, because
// exporters state the types of weights. The rules are needed for graphs that do not state them
// (saved with include_initializers=False), where they detect weights that contradict each other;
// for models whose data ExternalDataWriter writes; and for cut pieces.
#pragma once

#include <cstdint>
#include <string_view>

#include "onnx/value_types.h"

namespace onnx_external {

// Bit i of a mask is the i-th input or output; the last bit also means all inputs or outputs after
// it.
struct OperatorRule {
  std::string_view op;
  std::uint32_t same_inputs = 0;   // these inputs have the same element type
  std::uint32_t same_outputs = 0;  // these outputs also have it
  std::int32_t output_type = 0;    // of the first output, regardless of the inputs; 0 = not fixed
  void (*shapes)(NodeTypes& node) = nullptr;
};

// Returns nullptr for operators of other domains and for unknown ones.
[[nodiscard]] const OperatorRule* rule_of(const onnx::NodeProto& node);

}  // namespace onnx_external
