#include "checkpoint/quantized/quant_settings.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/formats/shard_index.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSettingsBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxSettingsDepth = 64;
constexpr std::string_view kModelConfig = "config.json";

// The position of the settings in a file, and the method if the settings do not state one.
struct SettingsRow {
  std::string_view file;
  std::string_view member;  // empty: the file itself
  std::string_view method;
};

// The first that is there counts.
constexpr std::array kPlaces = {
    SettingsRow{kModelConfig, "quantization_config", ""},
    SettingsRow{kModelConfig, "compression_config", "compressed-tensors"},
    SettingsRow{kModelConfig, "quantization", "mlx"},
    SettingsRow{"quantize_config.json", "", "gptq"},
    SettingsRow{"quant_config.json", "", "awq"},
    SettingsRow{"hf_quant_config.json", "quantization", "modelopt"},
    SettingsRow{"quanto_qmap.json", "", "quanto"},
};

// Parts of a model have their own configs.
constexpr std::array<std::string_view, 3> kParts = {"text_config", "language_config", "llm_config"};

// With `only_if_named`, a file that has none of the members is not parsed, because Python also
// writes Infinity, which is not valid JSON.
Result<std::optional<Json>> parse_file(const fs::path& folder, std::string_view name,
                                       bool only_if_named) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / name, ignored)) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto file, open_shard(folder, name));
  TRY_ASSIGN(const auto text, read_file(*file, kMaxSettingsBytes));
  if (only_if_named && text.find("quantiz") == std::string::npos &&
      text.find("compression_config") == std::string::npos) {
    return std::nullopt;
  }
  TRY_ASSIGN_IN(file->name(), auto json, parse_json(text, kMaxSettingsDepth));
  return json;
}

const Json* member_of(const Json& file, std::string_view member) {
  if (member.empty()) {
    return file.object() == nullptr ? nullptr : &file;
  }
  if (const Json* const found = file.find(member); found != nullptr && found->object() != nullptr) {
    return found;
  }
  for (const std::string_view part : kParts) {
    const Json* const inner = file.find(part);
    const Json* const found = inner == nullptr ? nullptr : inner->find(member);
    if (found != nullptr && found->object() != nullptr) {
      return found;
    }
  }
  return nullptr;
}

std::string lower_text(const Json& config, std::string_view key) {
  const std::string* const text = config.get<std::string>(key);
  return text == nullptr ? "" : ascii_lower(*text);
}

}  // namespace

std::optional<std::int64_t> json_integer(const Json* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* const negative = std::get_if<std::int64_t>(&value->value)) {
    return *negative;
  }
  const std::uint64_t* const other = value->uint();
  return other != nullptr && std::in_range<std::int64_t>(*other)
             ? std::optional(static_cast<std::int64_t>(*other))
             : std::nullopt;
}

std::string QuantSettings::text(std::string_view key) const {
  return lower_text(config, key);
}

std::optional<std::int64_t> QuantSettings::integer(std::string_view key) const {
  return json_integer(config.find(key));
}

Result<QuantSettings> read_quant_settings(const fs::path& folder) {
  QuantSettings settings;
  std::optional<Json> file;
  std::string_view name;
  for (const SettingsRow& row : kPlaces) {
    if (row.file != name) {
      name = row.file;
      TRY_ASSIGN(file, parse_file(folder, name, name == kModelConfig));
      if (file && name == kModelConfig) {
        settings.model = *file;
      }
    }
    const Json* const found = file ? member_of(*file, row.member) : nullptr;
    if (found == nullptr || settings.is_given()) {
      continue;
    }
    settings.config = *found;
    settings.method = lower_text(*found, "quant_method");
    settings.method = settings.method.empty() ? std::string(row.method) : settings.method;
    settings.place =
        (folder / name).string() + (row.member.empty() ? "" : ": " + std::string(row.member));
  }
  if (settings.is_given() && settings.model.object() == nullptr) {
    if (auto model = parse_file(folder, kModelConfig, false); model && *model) {
      settings.model = **std::move(model);
    }
  }
  return settings;
}

}  // namespace onnx_external
