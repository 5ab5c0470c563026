// Reads how the weights in a transformers folder are quantized, as its JSON files state.
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
  std::string place;   // the file and member that state the quantization; empty if none does
  std::string method;  // "gptq", "awq", "compressed-tensors", ..., lower case; "mlx", "modelopt"
  Json config;         // the quantization object; null if there is none
  Json model;          // config.json, if it was parsed

  [[nodiscard]] bool is_given() const { return !place.empty(); }
  // Return members of the config; nullopt (or "") if they are absent or have another type.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
};

[[nodiscard]] std::optional<std::int64_t> json_integer(const Json* value);

// Reads config.json and the files that quantization libraries write next to it. If a folder has
// none of them, returns empty settings. Errors: kCorrupt, kIo.
[[nodiscard]] Result<QuantSettings> read_quant_settings(const std::filesystem::path& folder);

}  // namespace onnx_external
