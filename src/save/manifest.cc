#include "save/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/bad_input.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/derivation_json.h"
#include "onnx_external/plan.h"
#include "save/packed_json.h"
#include "tensor/recipe_json.h"

namespace onnx_external {
namespace {

constexpr std::string_view kFormatName = "onnx-external-manifest";

std::string_view place_name(TensorPlace place) {
  return place == TensorPlace::kSparse ? "sparse" : "attribute";
}

void append_text(std::string& out, std::string_view member, std::string_view text) {
  append_json(out.append(member), text);
}

void append_number(std::string& out, std::string_view member, std::uint64_t number) {
  out.append(member).append(std::to_string(number));
}

// Long models have many of these: plain appends, no format strings.
void append_tensor(std::string& out, const ManifestTensor& tensor) {
  append_text(out, "{\"slot\": ", tensor.slot);
  if (tensor.place != TensorPlace::kInitializer) {
    append_text(out, ", \"place\": ", place_name(tensor.place));
  }
  if (tensor.graph != 0) {
    append_number(out, ", \"graph\": ", tensor.graph);
  }
  if (!tensor.key.empty()) {
    append_text(out, ", \"key\": ", tensor.key);
  }
  if (!tensor.rule.empty()) {
    append_text(out, ", \"rule\": ", tensor.rule);
  }
  if (!tensor.recipe.empty()) {
    out.append(", \"recipe\": ").append(recipe_json(tensor.recipe));
  }
  if (tensor.packed) {
    out.append(", \"quantize\": ").append(packed_json(*tensor.packed));
  }
  if (tensor.overflowed != 0) {
    append_number(out, ", \"overflowed\": ", tensor.overflowed);
  }
  if (!tensor.file.empty()) {
    append_text(out, ", \"file\": ", tensor.file);
  }
  append_number(out, ", \"offset\": ", tensor.offset);
  append_number(out, ", \"length\": ", tensor.length);
  if (tensor.crc32) {
    out.append(", \"crc32\": \"").append(hex_text(*tensor.crc32)).append("\"");
  }
  out.append(", \"dtype\": ").append(std::to_string(tensor.data_type)).append(", \"dims\": [");
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    out.append(i == 0 ? "" : ", ").append(std::to_string(tensor.dims[i]));
  }
  out.append("]}");
}

Result<std::string> text_member(const Json& object, std::string_view name) {
  const auto* const text = object.get<std::string>(name);
  return text != nullptr ? Result<std::string>(*text)
                         : corrupt(fmt::format("\"{}\" is missing or not text", name));
}

// An absent member is empty text.
Result<std::string> optional_text(const Json& object, std::string_view name) {
  return object.find(name) == nullptr ? Result<std::string>(std::string())
                                      : text_member(object, name);
}

// Returns a member that fits into T.
template <typename T = std::uint64_t>
Result<T> uint_member(const Json& object, std::string_view name) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  const auto* const number = object.get<std::uint64_t>(name);
  if (number == nullptr || *number > kMost) {
    return corrupt(fmt::format("\"{}\" is missing or not a whole number up to {}", name, kMost));
  }
  return static_cast<T>(*number);
}

Result<std::uint32_t> crc_member(const Json& object) {
  TRY_ASSIGN(auto text, text_member(object, "crc32"));
  const auto value = hex_number(text);
  return value ? Result<std::uint32_t>(*value) : corrupt("\"crc32\" is not 8 hex digits");
}

// The array that is a member of `object`, out of it; nothing when there is none.
std::optional<JsonArray> take_array(Json& object, std::string_view name) {
  if (auto* const members = std::get_if<JsonObject>(&object.value)) {
    for (auto& [key, member] : *members) {
      if (auto* const array = std::get_if<JsonArray>(&member.value); array && key == name) {
        return std::move(*array);
      }
    }
  }
  return std::nullopt;
}

Result<std::string> plain_name_member(const Json& object) {
  TRY_ASSIGN(auto name, text_member(object, "file"));
  if (auto plain = check_plain_name(name); !plain) {
    return corrupt("\"file\": " + plain.error().message);
  }
  return name;
}

Result<Shape> dims_member(const Json& object) {
  const auto* const list = object.get<JsonArray>("dims");
  if (list == nullptr) {
    return corrupt("\"dims\" is missing or not a list");
  }
  Shape dims;
  for (const Json& dim : *list) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (dim.uint() == nullptr || *dim.uint() > kMost) {
      return corrupt("\"dims\" contains a value that is not a dimension");
    }
    dims.push_back(static_cast<std::int64_t>(*dim.uint()));
  }
  return dims;
}

Result<TensorPlace> place_member(const Json& object) {
  TRY_ASSIGN(const auto name, optional_text(object, "place"));
  for (const TensorPlace place : {TensorPlace::kSparse, TensorPlace::kAttribute}) {
    if (name == place_name(place)) {
      return place;
    }
  }
  return name.empty() ? Result<TensorPlace>(TensorPlace::kInitializer)
                      : corrupt("\"place\" is not known");
}

// A file of the model's own has a plain name, perhaps in a folder, and a CRC for each of its
// tensors.
Status check_own(const ManifestTensor& tensor, bool has_file) {
  if (!tensor.crc32) {
    return corrupt("\"crc32\" is missing");
  }
  if (!has_file) {
    return {};
  }
  const std::size_t slash = tensor.file.find('/');
  Status plain = check_plain_name(tensor.file.substr(0, slash));
  if (plain && slash != std::string::npos) {
    plain = check_plain_name(tensor.file.substr(slash + 1));
  }
  return plain ? Status() : corrupt("\"file\": " + plain.error().message);
}

Result<ManifestTensor> parse_tensor(const Json& entry, const Manifest& manifest) {
  ManifestTensor tensor;
  TRY_ASSIGN(tensor.slot, text_member(entry, "slot"));
  TRY_ASSIGN(tensor.place, place_member(entry));
  if (entry.find("graph") != nullptr) {
    TRY_ASSIGN(tensor.graph, uint_member<std::uint32_t>(entry, "graph"));
  }
  TRY_ASSIGN(tensor.key, optional_text(entry, "key"));
  TRY_ASSIGN(tensor.rule, optional_text(entry, "rule"));
  if (const Json* const recipe = entry.find("recipe"); recipe != nullptr) {
    TRY_ASSIGN(tensor.recipe, parse_recipe(*recipe));
  }
  if (const Json* const packed = entry.find("quantize"); packed != nullptr) {
    TRY_ASSIGN_IN("\"quantize\"", tensor.packed, parse_packed(*packed));
  }
  if (entry.find("overflowed") != nullptr) {
    TRY_ASSIGN(tensor.overflowed, uint_member(entry, "overflowed"));
  }
  TRY_ASSIGN(tensor.file, optional_text(entry, "file"));
  TRY_ASSIGN(tensor.offset, uint_member(entry, "offset"));
  TRY_ASSIGN(tensor.length, uint_member(entry, "length"));
  if (entry.find("crc32") != nullptr) {
    TRY_ASSIGN(tensor.crc32, crc_member(entry));
  }
  TRY_ASSIGN(tensor.data_type, uint_member<std::int32_t>(entry, "dtype"));
  TRY_ASSIGN(tensor.dims, dims_member(entry));
  if (!manifest.is_linked(tensor.file)) {
    TRY(check_own(tensor, entry.find("file") != nullptr));
  }
  return tensor;
}

// Reads a list that may be absent into `out`. parse(entry) returns the next element; errors name
// the `what` by its place in the list.
template <typename T, typename Parse>
Status parse_list(const Json& root, std::string_view name, std::string_view what,
                  std::vector<T>& out, const Parse& parse) {
  const Json* entries = root.find(name);
  if (entries == nullptr) {
    return {};
  }
  if (entries->array() == nullptr) {
    return corrupt(fmt::format("\"{}\" is not a list", name));
  }
  for (const Json& entry : *entries->array()) {
    TRY_ASSIGN_IN(fmt::format("{} {}", what, out.size()), auto element, parse(entry));
    out.push_back(std::move(element));
  }
  return {};
}

// The files that are not the model's own.
Status parse_linked(const Json& root, Manifest& manifest) {
  const auto parse = [&](const Json& entry) -> Result<LinkedFile> {
    LinkedFile file;
    TRY_ASSIGN(file.file, text_member(entry, "file"));
    TRY_ASSIGN(file.bytes, uint_member(entry, "bytes"));
    if (auto safe = check_relative_location(file.file); !safe) {
      return corrupt("\"file\": " + safe.error().message);
    }
    if (!manifest.linked.empty() && file.file <= manifest.linked.back().file) {
      return corrupt("\"file\" is not in ascending order");
    }
    return file;
  };
  return parse_list(root, "linked", "linked file", manifest.linked, parse);
}

Status parse_model(const Json& root, Manifest& manifest) {
  if (root.get<JsonObject>("model") == nullptr) {
    return corrupt("\"model\" is missing or not an object");
  }
  const Json* const model = root.find("model");
  const auto parse = [&]() -> Status {
    TRY_ASSIGN(manifest.model_file, plain_name_member(*model));
    TRY_ASSIGN(manifest.model_bytes, uint_member(*model, "bytes"));
    TRY_ASSIGN(manifest.model_crc32, crc_member(*model));
    return {};
  };
  Status status = parse();
  return status ? status : fail_in("model", std::move(status).error());
}

Status parse_set(const Json& root, Manifest& manifest) {
  const auto parse = [](const Json& entry) -> Result<SetMember> {
    SetMember member;
    TRY_ASSIGN(member.file, plain_name_member(entry));
    TRY_ASSIGN(member.bytes, uint_member(entry, "bytes"));
    TRY_ASSIGN(member.crc32, crc_member(entry));
    return member;
  };
  TRY(parse_list(root, "set", "model of the set", manifest.set, parse));
  return manifest.set.size() <= kMaxSetModels
             ? Status()
             : corrupt(fmt::format("\"set\" has more than {} models", kMaxSetModels));
}

Status check_header(const Json& root) {
  auto format = text_member(root, "format");
  if (!format || *format != kFormatName) {
    return corrupt(fmt::format("not a manifest: \"format\" is not \"{}\"", kFormatName));
  }
  TRY_ASSIGN(auto version, uint_member(root, "version"));
  return version == kManifestVersion
             ? Status()
             : fail(ErrorCode::kUnsupported,
                    fmt::format("manifest version {} is not known; this version reads {}", version,
                                kManifestVersion));
}

Status parse_save_options(const Json& root, Manifest& manifest) {
  const Json* const json = root.find("options");
  if (json != nullptr) {
    TRY_ASSIGN_IN("options", manifest.options, parse_options(*json));
  }
  return {};
}

std::string options_text(const MappingOptions& options) {
  const std::string json = options_json(options);
  return json.empty() ? json : "\"options\": " + json + ",\n";
}

std::string set_text(const std::vector<SetMember>& members) {
  std::string out = members.empty() ? "" : "\"set\": [";
  std::string_view separator = "\n";
  for (const SetMember& member : members) {
    fmt::format_to(std::back_inserter(out), "{}{{\"file\": {}, \"bytes\": {}, \"crc32\": \"{}\"}}",
                   separator, json_quote(member.file), member.bytes, hex_text(member.crc32));
    separator = ",\n";
  }
  return members.empty() ? out : out + "\n],\n";
}

std::string linked_text(const std::vector<LinkedFile>& files) {
  std::string out = files.empty() ? "" : "\"linked\": [";
  std::string_view separator = "\n";
  for (const LinkedFile& file : files) {
    fmt::format_to(std::back_inserter(out), "{}{{\"file\": {}, \"bytes\": {}}}", separator,
                   json_quote(file.file), file.bytes);
    separator = ",\n";
  }
  return files.empty() ? out : out + "\n],\n";
}

}  // namespace

bool Manifest::is_linked(std::string_view file) const {
  const auto place =
      std::lower_bound(linked.begin(), linked.end(), file,
                       [](const LinkedFile& a, std::string_view b) { return a.file < b; });
  return place != linked.end() && place->file == file;
}

ManifestLines::ManifestLines(std::size_t tensors) {
  constexpr std::size_t kUsualLine = 256;
  text_.reserve(kUsualLine * tensors);
}

void ManifestLines::add(const ManifestTensor& tensor) {
  text_ += text_.empty() ? "\n" : ",\n";
  append_tensor(text_, tensor);
}

std::string manifest_text(const Manifest& manifest) {
  ManifestLines lines(manifest.tensors.size());
  for (const ManifestTensor& tensor : manifest.tensors) {
    lines.add(tensor);
  }
  return manifest_text(manifest, std::move(lines));
}

namespace {

std::string header_text() {
  return fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n", kFormatName, kManifestVersion);
}

std::string model_text(const SetMember& model) {
  return fmt::format("\"model\": {{\"file\": {}, \"bytes\": {}, \"crc32\": \"{}\"}},\n",
                     json_quote(model.file), model.bytes, hex_text(model.crc32));
}

}  // namespace

std::optional<bool> begins_as_manifest_of(const SetMember& model, std::string_view text) {
  const std::string start = header_text();
  return text.starts_with(start)
             ? std::optional(text.substr(start.size()).starts_with(model_text(model)))
             : std::nullopt;
}

std::string manifest_text(const Manifest& manifest, ManifestLines lines) {
  const std::string head =
      header_text() +
      model_text({manifest.model_file, manifest.model_bytes, manifest.model_crc32}) +
      options_text(manifest.options) + set_text(manifest.set) + linked_text(manifest.linked) +
      "\"tensors\": [";
  std::string out = std::move(lines).text();
  out.insert(0, head).append("\n]");
  out += "\n}\n";
  return out;
}

Result<Manifest> parse_manifest(std::string_view text) {
  TRY_ASSIGN(auto root, parse_json(text, kMaxDerivedJsonDepth));
  TRY(check_header(root));
  Manifest manifest;
  TRY(parse_model(root, manifest));
  TRY(parse_save_options(root, manifest));
  TRY(parse_set(root, manifest));
  TRY(parse_linked(root, manifest));
  auto entries = take_array(root, "tensors");
  if (!entries) {
    return corrupt("\"tensors\" is missing or not a list");
  }
  constexpr std::size_t kMostReserved = std::size_t{1} << 16;  // nothing is known of them yet
  manifest.tensors.reserve(std::min(entries->size(), kMostReserved));
  for (Json& entry : *entries) {
    TRY_ASSIGN_IN(fmt::format("tensor {}", manifest.tensors.size()), auto tensor,
                  parse_tensor(entry, manifest));
    manifest.tensors.push_back(std::move(tensor));
    entry = Json();  // makes room for the next tensor
  }
  return manifest;
}

}  // namespace onnx_external
