#include "checkpoint/gguf/gguf_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace onnx_external {
namespace {

constexpr std::size_t kShownItems = 8;

std::string item_text(const GgufValue& value, std::size_t i) {
  if (value.type == GgufType::kString) {
    return quote(value.texts[i]);
  }
  if (value.type == GgufType::kBool) {
    return value.numbers[i] != 0 ? "true" : "false";
  }
  if (value.type == GgufType::kFloat32) {
    return fmt::format("{}", static_cast<float>(value.real(i)));
  }
  if (value.is_float()) {
    return fmt::format("{}", value.real(i));
  }
  return value.is_signed() ? std::to_string(value.integer(i)) : std::to_string(value.numbers[i]);
}

std::string value_text(const GgufValue& value) {
  if (!value.is_array) {
    return item_text(value, 0);
  }
  std::string text = gguf_type_text(value);
  if (value.is_kept()) {
    const std::size_t count = std::min(kShownItems, static_cast<std::size_t>(value.count));
    for (std::size_t i = 0; i < count; ++i) {
      text += (i == 0 ? ": " : ", ") + item_text(value, i);
    }
    text += count < value.count ? ", ..." : "";
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> gguf_texts(const GgufMetadata& metadata) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const GgufEntry& entry : metadata.entries) {
    texts.emplace_back(entry.key, value_text(entry.value));
  }
  return texts;
}

}  // namespace onnx_external
