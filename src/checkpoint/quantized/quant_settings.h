// Reads the quantization settings of a transformers folder from its JSON files.
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
  std::string place;   // the file and member with the settings; empty if there are none
  std::string method;  // "gptq", "awq", "compressed-tensors", ..., lower case; "mlx", "modelopt"
  Json config;         // the quantization object; null if there is none
  Json model;          // config.json, if it was parsed

  [[nodiscard]] bool is_given() const { return !place.empty(); }
  // Return members of the config, or nullopt (or "") if a member is absent or has another type.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
};

[[nodiscard]] std::optional<std::int64_t> json_integer(const Json* value);

// Reads config.json and the files that quantization libraries write next to it. Returns empty
// settings if the folder has none of these files. Errors: kCorrupt, kIo.
[[nodiscard]] Result<QuantSettings> read_quant_settings(const std::filesystem::path& folder);

}  // namespace onnx_external
