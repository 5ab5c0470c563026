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
  std::string key;      // the first one that shows it
  bool is_read = true;  // if its parts are whole, and the settings of the folder are known
};

// Nullopt if no name is a known one.
[[nodiscard]] std::optional<QuantizedKeys> quantized_keys(std::span<const std::string_view> names);

// Whether the name is that of a float8 scale which is read if the settings of the folder are known.
[[nodiscard]] bool is_read_with_settings(std::string_view scale);

// An operator of ONNX or ONNX Runtime whose parameters are quantized weights.
[[nodiscard]] bool reads_quantized(std::string_view op_type);

}  // namespace onnx_external
