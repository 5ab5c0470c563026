#include "checkpoint/gguf/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/file.h"
#include "base/try.h"
#include "checkpoint/gguf/gguf_file.h"

namespace onnx_external {

double GgufValue::real(std::size_t i) const {
  return std::bit_cast<double>(numbers[i]);
}

std::optional<std::uint64_t> GgufValue::uint() const {
  const bool is_number = !is_array && type != GgufType::kString && type != GgufType::kBool &&
                         !is_float() && !(is_signed() && integer() < 0);
  return is_number ? std::optional(numbers.front()) : std::nullopt;
}

const std::string* GgufValue::text() const {
  return !is_array && type == GgufType::kString ? texts.data() : nullptr;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const GgufEntry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

std::string GgufMetadata::text(std::string_view key) const {
  const GgufValue* const value = find(key);
  const std::string* const text = value == nullptr ? nullptr : value->text();
  return text == nullptr ? std::string() : *text;
}

std::string gguf_type_text(const GgufValue& value) {
  constexpr std::array kNames = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                 "int32",  "float32", "bool",   "string", "array",
                                 "uint64", "int64",   "float64"};
  const std::string name = kNames.at(static_cast<std::size_t>(value.type));
  return value.is_array ? name + "[" + std::to_string(value.count) + "]" : name;
}

Result<GgufMetadata> read_gguf_metadata(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  TRY_ASSIGN(auto gguf, read_gguf_file(std::move(file), GgufArrays::kAll));
  return std::move(gguf.metadata);
}

}  // namespace onnx_external
