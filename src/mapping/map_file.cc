// Reads and writes map files, and parses --rename.
#include <re2/re2.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "base/bad_input.h"
#include "base/expression_text.h"
#include "base/file.h"
#include "base/json.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/derivation_json.h"
#include "onnx_external/mapping.h"
#include "tensor/recipe_json.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxMapFileBytes = std::uint64_t{256} << 20;

// KEY: "key", or {"key": "key", "recipe": [...]}, which may cast.
Result<MapEntry> parse_entry(const std::string& slot, const Json& key) {
  if (key.string() != nullptr) {
    return MapEntry{slot, *key.string()};
  }
  const Json* const name = key.find("key");
  const Json* const steps = key.find("recipe");
  const std::size_t known = steps == nullptr ? 1 : 2;
  if (name == nullptr || name->string() == nullptr || key.object()->size() != known) {
    return corrupt(R"(its key must be a string, or {"key": string, "recipe": [STEP, ...]})");
  }
  MapEntry entry{slot, *name->string()};
  if (steps != nullptr) {
    TRY_ASSIGN(auto recipe, parse_recipe(*steps));
    entry.recipe = std::move(recipe);
  }
  return entry;
}

Status add_entries(const JsonObject& slots, const std::string& model,
                   std::vector<MapEntry>& entries) {
  for (const auto& [slot, key] : slots) {
    TRY_ASSIGN_IN("slot " + quote(slot), auto entry, parse_entry(slot, key));
    entry.model = model;
    entries.push_back(std::move(entry));
  }
  return {};
}

// {"model": {"slot": KEY, ...}, ...}; nothing for another form, such as a slot called "models".
const JsonObject* models_of(const Json& document) {
  const Json* models = document.find("models");
  const JsonObject* object = models == nullptr ? nullptr : models->object();
  const bool has_form =
      object != nullptr && std::all_of(object->begin(), object->end(), [](const auto& model) {
        return model.second.object() != nullptr;
      });
  return has_form ? object : nullptr;
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

// Returns the text up to the next `delimiter` that is not escaped by a backslash. Removes the
// backslash of escaped delimiters. Moves `rest` past the delimiter.
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

Result<MapFile> parse_map_file(std::string_view text) {
  TRY_ASSIGN(const auto document, parse_json(text, kMaxDerivedJsonDepth));
  // A plain list may have slots of these names if their keys are strings.
  const auto member = [&](std::string_view name) -> const Json* {
    const Json* const found = document.find(name);
    return found != nullptr && found->object() != nullptr ? found : nullptr;
  };
  const Json* const map = member("map");
  const Json* const derived = member("derived");
  const JsonObject* const models = models_of(document);
  if (document.object() == nullptr) {
    return corrupt(R"(a map file is JSON: {"slot": "key", ...})");
  }
  MapFile out;
  if (derived != nullptr) {
    TRY_ASSIGN(out.derived, parse_derived(*derived));
  }
  if (map != nullptr || (derived == nullptr && models == nullptr)) {
    TRY(add_entries(*(map == nullptr ? document : *map).object(), "", out.map));
  }
  for (std::size_t i = 0; models != nullptr && i < models->size(); ++i) {
    const auto& [model, slots] = (*models)[i];
    TRY_IN(quote(model), add_entries(*slots.object(), model, out.map));
  }
  return out;
}

Result<MapFile> read_map_file(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  TRY_ASSIGN(auto text, read_file(*file, kMaxMapFileBytes));
  auto parsed = parse_map_file(text);
  return parsed ? std::move(parsed) : fail_in(path.string(), std::move(parsed).error());
}

namespace {

// "{...}" with the slots of one model, each on a line of its own.
template <typename Items, typename ToText>
std::string slots_text(const Items& items, std::string_view model, const std::string& indent,
                       const ToText& to_text) {
  std::string text = "{";
  NameSet written;
  for (const auto& item : items) {
    if (item.model == model && written.insert(item.slot).second) {
      text += (written.size() > 1 ? ",\n  " : "\n  ") + indent + to_text(item);
    }
  }
  return text + "\n" + indent + "}";
}

// The same for each model; without their names if there are none.
template <typename Items, typename ToText>
std::string models_text(const Items& items, const std::vector<std::string>& models,
                        const ToText& to_text) {
  if (models.size() == 1 && models.front().empty()) {
    return slots_text(items, "", "  ", to_text);
  }
  std::string text = "{";
  for (const std::string& model : models) {
    text += (&model == models.data() ? "\n    " : ",\n    ") + json_quote(model) + ": " +
            slots_text(items, model, "    ", to_text);
  }
  return text + "\n  }";
}

}  // namespace

std::string map_file_text(std::span<const MapEntry> entries, std::span<const OpenSlot> open,
                          std::span<const DerivedTensor> derived) {
  std::vector<std::string> models;
  const auto add_model = [&](const std::string& model) {
    if (std::find(models.begin(), models.end(), model) == models.end()) {
      models.push_back(model);
    }
  };
  for (const MapEntry& entry : entries) {
    add_model(entry.model);
  }
  for (const OpenSlot& slot : open) {
    add_model(slot.model);
  }
  if (models.empty()) {
    models.emplace_back();
  }
  const bool has_models = models.size() > 1 || !models.front().empty();
  std::string text = "{";
  if (!derived.empty()) {
    text += "\n  \"derived\": " + derived_json(derived, "\n    ") + ",";
  }
  text += "\n  ";
  text += has_models ? "\"models\": " : "\"map\": ";
  text += models_text(entries, models, [](const MapEntry& entry) {
    return json_quote(entry.slot) + ": " + key_text(entry);
  });
  if (!open.empty()) {
    text += ",\n  \"open\": " + models_text(open, models, open_text);
  }
  return text + "\n}\n";
}

Result<Rename> parse_rename(std::string_view text) {
  const std::string where = quote(text);
  const char delimiter = text.size() > 1 ? text[1] : '\0';
  if (!text.starts_with('s') || delimiter == '\0' || delimiter == '\\') {
    return fail(ErrorCode::kInvalidArgument,
                where + " does not have the form s/RE/REPL/ or s/RE/REPL/g");
  }
  std::string_view rest = text.substr(2);
  const std::optional<std::string> pattern = take_part(rest, delimiter);
  const std::optional<std::string> replacement =
      pattern ? take_part(rest, delimiter) : std::nullopt;
  if (!replacement || pattern->empty() || (!rest.empty() && rest != "g")) {
    return fail(ErrorCode::kInvalidArgument,
                where + " does not have the form s/RE/REPL/ or s/RE/REPL/g");
  }
  const std::size_t dollar = replacement->find('$');
  if (dollar != std::string::npos && dollar + 1 < replacement->size() &&
      std::isdigit(static_cast<unsigned char>((*replacement)[dollar + 1])) != 0) {
    const char group = (*replacement)[dollar + 1];
    return fail(ErrorCode::kInvalidArgument,
                where + ": in the replacement, a group is written \\" + group + ", not $" + group);
  }
  const RE2 expression(*pattern, RE2::Quiet);
  std::string why;
  if (!expression.ok() || !expression.CheckRewriteString(*replacement, &why)) {
    return fail(
        ErrorCode::kInvalidArgument,
        where + ": " + (expression.ok() ? why : invalid_expression_text(expression.error())));
  }
  return Rename{*pattern, *replacement, rest == "g"};
}

}  // namespace onnx_external
