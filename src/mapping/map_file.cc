// Reads and writes map files, and parses --rename.
#include <re2/re2.h>

#include <cctype>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/mapping.h"
#include "tensor/recipe_json.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxMapFileBytes = std::uint64_t{256} << 20;

// KEY: "key", or {"key": "key", "recipe": [...]}.
Result<MapEntry> parse_entry(const std::string& slot, const Json& key) {
  if (key.string() != nullptr) {
    return MapEntry{slot, *key.string()};
  }
  const Json* name = key.find("key");
  if (name == nullptr || name->string() == nullptr) {
    return fail(
        ErrorCode::kCorrupt,
        R"(its key must be a string, or {"key": "key", "recipe": [STEP, ...]}, with the steps "transpose" and "cast")");
  }
  MapEntry entry{slot, *name->string()};
  if (const Json* steps = key.find("recipe"); steps != nullptr) {
    TRY_ASSIGN(auto recipe, parse_recipe(*steps));
    entry.recipe = std::move(recipe);
  }
  return entry;
}

Result<std::vector<MapEntry>> parse_map(std::string_view text) {
  TRY_ASSIGN(auto document, parse_json(text));
  const JsonObject* object = document.object();
  if (const Json* map = document.find("map"); map != nullptr && map->object() != nullptr) {
    object = map->object();
  }
  if (object == nullptr) {
    return fail(ErrorCode::kCorrupt, R"(a map file is JSON: {"slot": "key", ...})");
  }
  std::vector<MapEntry> entries;
  for (const auto& [slot, key] : *object) {
    Result<MapEntry> entry = parse_entry(slot, key);
    if (!entry) {
      return fail_in("slot " + quote(slot), std::move(entry).error());
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

// KEY of parse_entry.
std::string key_text(const MapEntry& entry) {
  if (entry.recipe.empty()) {
    return json_quote(entry.key);
  }
  return "{\"key\": " + json_quote(entry.key) + ", \"recipe\": " + recipe_json(entry.recipe) + "}";
}

// "slot": {"form": "FLOAT [4, 8]", "candidates": [KEY, ...]}
std::string open_text(const OpenSlot& slot) {
  std::string text =
      json_quote(slot.slot) + ": {\"form\": " + json_quote(slot.form) + ", \"candidates\": [";
  for (const MapEntry& candidate : slot.candidates) {
    text += (&candidate == slot.candidates.data() ? "" : ", ") + key_text(candidate);
  }
  return text + "]}";
}

// The text up to the next `delimiter` that no backslash escapes; an escaped one loses its
// backslash. Moves `rest` behind it.
std::optional<std::string> take_part(std::string_view& rest, char delimiter) {
  std::string part;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == delimiter) {
      rest.remove_prefix(i + 1);
      return part;
    }
    if (rest[i] == '\\' && i + 1 < rest.size()) {
      part += rest[i + 1] == delimiter ? "" : "\\";
      ++i;
    }
    part += rest[i];
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<MapEntry>> read_map_file(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  TRY_ASSIGN(auto text, read_file(*file, kMaxMapFileBytes));
  auto entries = parse_map(text);
  if (!entries) {
    return fail_in(path.string(), std::move(entries).error());
  }
  return entries;
}

std::string map_file_text(std::span<const MapEntry> entries, std::span<const OpenSlot> open) {
  std::string text = "{\n  \"map\": {";
  NameSet written;
  for (const MapEntry& entry : entries) {
    if (written.insert(entry.slot).second) {
      text += written.size() > 1 ? ",\n    " : "\n    ";
      text += json_quote(entry.slot) + ": " + key_text(entry);
    }
  }
  text += "\n  }";
  if (!open.empty()) {
    text += ",\n  \"open\": {";
    for (const OpenSlot& slot : open) {
      text += (&slot == open.data() ? "\n    " : ",\n    ") + open_text(slot);
    }
    text += "\n  }";
  }
  return text + "\n}\n";
}

Result<Rename> parse_rename(std::string_view text) {
  const std::string where = quote(text);
  const char delimiter = text.size() > 1 ? text[1] : '\0';
  if (!text.starts_with('s') || delimiter == '\0' || delimiter == '\\') {
    return fail(ErrorCode::kInvalidArgument, where + ": the form is s/RE/REPL/ or s/RE/REPL/g");
  }
  std::string_view rest = text.substr(2);
  const std::optional<std::string> pattern = take_part(rest, delimiter);
  const std::optional<std::string> replacement =
      pattern ? take_part(rest, delimiter) : std::nullopt;
  if (!replacement || pattern->empty() || (!rest.empty() && rest != "g")) {
    return fail(ErrorCode::kInvalidArgument, where + ": the form is s/RE/REPL/ or s/RE/REPL/g");
  }
  const std::size_t dollar = replacement->find('$');
  if (dollar != std::string::npos && dollar + 1 < replacement->size() &&
      std::isdigit(static_cast<unsigned char>((*replacement)[dollar + 1])) != 0) {
    const char group = (*replacement)[dollar + 1];
    return fail(ErrorCode::kInvalidArgument,
                where + ": a group is written \\" + group + " in the replacement, not $" + group);
  }
  const RE2 expression(*pattern, RE2::Quiet);
  std::string why;
  if (!expression.ok() || !expression.CheckRewriteString(*replacement, &why)) {
    return fail(ErrorCode::kInvalidArgument,
                where + ": " + (expression.ok() ? why : expression.error()));
  }
  return Rename{*pattern, *replacement, rest == "g"};
}

}  // namespace onnx_external
