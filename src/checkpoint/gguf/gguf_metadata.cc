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

std::string gguf_other_kind(const GgufMetadata& metadata, std::size_t tensors) {
  const std::string type = metadata.text("general.type");
  const std::string architecture = metadata.text("general.architecture");
  if (type == "adapter" || metadata.find("adapter.type") != nullptr) {
    return "a llama.cpp adapter (LoRA), not a model; pass it after the model that it changes";
  }
  if (type == "mmproj" || architecture == "clip") {
    return "the image or audio encoder of a multimodal model (mmproj), without a language model; "
           "pass the file of the language model";
  }
  if (type == "imatrix" || metadata.find("imatrix.datasets") != nullptr) {
    return "an importance matrix (imatrix), which guides quantizing with llama.cpp; it has no "
           "weights";
  }
  if (architecture == "controlvector") {
    return "a control vector of llama.cpp, not a model";
  }
  if (tensors == 0) {
    return "a vocabulary without weights; pass the file of the model";
  }
  return {};
}

Result<GgufMetadata> read_gguf_metadata(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  TRY_ASSIGN(auto gguf, read_gguf_file(std::move(file), GgufArrays::kAll));
  return std::move(gguf.metadata);
}

}  // namespace onnx_external
