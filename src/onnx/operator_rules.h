// The operators of ONNX's default domain, and what each tells of the values around it.
#pragma once

#include <cstdint>
#include <string_view>

#include "onnx/value_forms.h"

namespace onnx_external {

// Bit i of a mask is the i-th input or output; the last bit stands for all behind it, too.
struct OperatorRule {
  std::string_view op;
  std::uint32_t same_inputs = 0;   // these have one element type
  std::uint32_t same_outputs = 0;  // and these have it, too
  std::int32_t output_type = 0;    // of the first output, whatever the inputs are; 0 = not fixed
  void (*shapes)(NodeForms& node) = nullptr;
};

// nullptr for operators of other domains and those that are not known.
[[nodiscard]] const OperatorRule* rule_of(const onnx::NodeProto& node);

}  // namespace onnx_external
