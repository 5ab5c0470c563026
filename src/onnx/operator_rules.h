// The operators of ONNX's default domain, and the inference rule of each.
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
