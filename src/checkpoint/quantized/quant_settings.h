// Reads how the weights of a transformers folder are quantized, according to its JSON files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct QuantSettings {
  std::string place;   // the file and the member that says it; empty: nothing does
  std::string method;  // "gptq", "awq", "compressed-tensors", ..., lower case; "mlx", "modelopt"
  Json config;         // the object; null: none
  Json model;          // config.json, if it was parsed

  [[nodiscard]] bool is_given() const { return !place.empty(); }
  // Members of the config; nullopt if absent, or not such a value.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
};

[[nodiscard]] std::optional<std::int64_t> json_integer(const Json* value);

// Reads config.json and the files of quantization libraries beside it. A folder without them gives
// empty settings. kCorrupt, kIo.
[[nodiscard]] Result<QuantSettings> read_quant_settings(const std::filesystem::path& folder);

}  // namespace onnx_external
