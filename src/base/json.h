// Parses JSON from untrusted sources into a small value tree, through nlohmann's SAX interface.
//
// Parsing is strict: duplicate keys and trailing text are errors, and nesting and size are bounded.
// Integers are kept as integers, and 1.0 is not an integer. Values are plain, and all functions may
// be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in file order, keys unique

struct Json {
  // null, bool, negative integer, other integer, number with fraction or exponent, string, ...
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray,
               JsonObject>
      value = nullptr;

  [[nodiscard]] const JsonObject* object() const { return std::get_if<JsonObject>(&value); }
  [[nodiscard]] const JsonArray* array() const { return std::get_if<JsonArray>(&value); }
  [[nodiscard]] const std::string* string() const { return std::get_if<std::string>(&value); }
  [[nodiscard]] const std::uint64_t* uint() const { return std::get_if<std::uint64_t>(&value); }

  // Returns the member with this key; nullptr if this is not an object or has no such key. Takes
  // linear time.
  [[nodiscard]] const Json* find(std::string_view key) const;

  // Returns the member with this key if its type is T, otherwise nullptr. T is std::string,
  // JsonArray, JsonObject, std::uint64_t or bool.
  template <typename T>
  [[nodiscard]] const T* get(std::string_view key) const {
    const Json* const member = find(key);
    return member == nullptr ? nullptr : std::get_if<T>(&member->value);
  }
};

inline constexpr std::size_t kMaxJsonDepth = 8;
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Parses a text. Fails with kCorrupt if the text is not exactly one JSON document; the message
// begins with "byte N: ", where bytes are counted from 1. A leading byte order mark and NUL bytes
// are also errors.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::size_t max_depth = kMaxJsonDepth);

// Appends `text` to `out` as a quoted JSON string. Bytes that are not UTF-8 become U+FFFD.
void append_json(std::string& out, std::string_view text);
[[nodiscard]] std::string json_quote(std::string_view text);

}  // namespace onnx_external
