// Recognizes quantized weights by name: by the keys that quantization libraries store in place of a
// weight, and by the operators that read such weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

struct QuantizedKeys {
  std::string method;   // "GPTQ"
  std::string key;      // the first key that shows it
  bool is_read = true;  // whether the library reads it, given all parts and the folder's settings
};

// Returns nullopt if none of the names is known.
[[nodiscard]] std::optional<QuantizedKeys> quantized_keys(std::span<const std::string_view> names);

// Returns whether the name is that of a float8 scale that can be read if the settings in the
// model's folder are known.
[[nodiscard]] bool is_read_with_settings(std::string_view scale);

// Returns whether this is an operator of ONNX or ONNX Runtime whose parameters are quantized
// weights.
[[nodiscard]] bool reads_quantized(std::string_view op_type);

}  // namespace onnx_external
