// Recognizes quantized weights by the names of the keys that quantization libraries store in place
// of a weight, and by the operators that read such weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

struct QuantizedKeys {
  std::string method;   // "GPTQ"
  std::string key;      // the first key that was recognized
  bool is_read = true;  // supported if all parts and the folder's settings are present
};

// Recognizes a quantization method by the names of keys. Returns nullopt if none of the names is
// known.
[[nodiscard]] std::optional<QuantizedKeys> quantized_keys(std::span<const std::string_view> names);

// Returns whether the name is that of a float8 scale that is supported if the settings in the
// model's folder are available.
[[nodiscard]] bool is_read_with_settings(std::string_view scale);

// Returns whether this is an operator of ONNX or ONNX Runtime whose parameters are quantized
// weights.
[[nodiscard]] bool reads_quantized(std::string_view op_type);

}  // namespace onnx_external
