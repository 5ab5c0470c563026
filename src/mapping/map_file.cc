// Map files, and the text forms of mapping options.
#include <re2/re2.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/name_map.h"
#include "base/text.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxMapFileBytes = std::uint64_t{256} << 20;

Result<std::vector<std::pair<std::string, std::string>>> parse_map(std::string_view text) {
  Result<Json> document = parse_json(text);
  if (!document) {
    return fail(std::move(document).error());
  }
  const JsonObject* object = document->object();
  if (const Json* map = document->find("map"); map != nullptr && map->object() != nullptr) {
    object = map->object();
  }
  if (object == nullptr) {
    return fail(ErrorCode::kCorrupt, R"(a map file is JSON: {"slot": "key", ...})");
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [slot, key] : *object) {
    if (key.string() == nullptr) {
      return fail(ErrorCode::kCorrupt, "slot " + quote(slot) + ": its key must be a string");
    }
    pairs.emplace_back(slot, *key.string());
  }
  return pairs;
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

Result<std::vector<std::pair<std::string, std::string>>> read_map_file(
    const std::filesystem::path& path) {
  auto file = SourceFile::open(path);
  if (!file) {
    return fail(std::move(file).error());
  }
  Result<std::string> text = read_file(**file, kMaxMapFileBytes);
  if (!text) {
    return fail(std::move(text).error());
  }
  auto pairs = parse_map(*text);
  if (!pairs) {
    return fail_in(path.string(), std::move(pairs).error());
  }
  return pairs;
}

std::string map_file_text(
    std::span<const std::pair<std::string_view, std::string_view>> slots_and_keys) {
  std::string text = "{\n  \"map\": {";
  NameSet written;
  for (const auto& [slot, key] : slots_and_keys) {
    if (written.insert(slot).second) {
      text += written.size() > 1 ? ",\n    " : "\n    ";
      text += json_quote(slot) + ": " + json_quote(key);
    }
  }
  return text + "\n  }\n}\n";
}

Result<Rename> parse_rename(std::string_view text) {
  const std::string where = "--rename " + quote(text);
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
  RE2::Options quiet;
  quiet.set_log_errors(false);
  const RE2 expression(*pattern, quiet);
  std::string why;
  if (!expression.ok() || !expression.CheckRewriteString(*replacement, &why)) {
    return fail(ErrorCode::kInvalidArgument,
                where + ": " + (expression.ok() ? why : expression.error()));
  }
  return Rename{*pattern, *replacement, rest == "g"};
}

}  // namespace onnx_external
