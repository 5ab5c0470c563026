// The operators of ONNX's default domain, and the inference rule of each.
//
// Why the rules are not those of libonnx (onnx::shape_inference), measured with 1.12, which Debian
// has, and 1.23:
// - In 1.12 a Conv or MaxPool with a stride of 0 divides by zero, and the signal ends the process.
// - With data propagation, without which nothing is known behind a Reshape, 26 Concat nodes that
//   double a constant of two numbers need more than 5 GiB and 150 s in both versions. Here
//   kMaxNumbers limits constants.
// - They go from inputs to outputs only. Weights that a graph leaves open, and the boundaries of
//   cut pieces, are also inferred from the nodes that read them.
// Of 300 cases of the strict campaign, none has another verdict with libonnx's rules or without any
// rules, because exporters state the types of weights. The rules are for graphs that do not (saved
// with include_initializers=False), where they detect weights that contradict each other, for the
// models of a Writer, and for cut pieces.
#pragma once

#include <cstdint>
#include <string_view>

#include "onnx/value_types.h"

namespace onnx_external {

// Bit i of a mask is the i-th input or output; the last bit also means all that follow.
struct OperatorRule {
  std::string_view op;
  std::uint32_t same_inputs = 0;   // these have one element type
  std::uint32_t same_outputs = 0;  // and these also have it
  std::int32_t output_type = 0;    // of the first output, whatever the inputs are; 0 = not fixed
  void (*shapes)(NodeTypes& node) = nullptr;
};

// Returns nullptr for operators of other domains and for unknown ones.
[[nodiscard]] const OperatorRule* rule_of(const onnx::NodeProto& node);

}  // namespace onnx_external
