#include "base/json.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/character_table.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Builds the tree from nlohmann's events. Returning false stops the parser; error_ says why.
class TreeBuilder {
 public:
  using Document = nlohmann::json;

  explicit TreeBuilder(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() { return add(Json{nullptr}) != nullptr; }
  bool boolean(bool value) { return add(Json{value}) != nullptr; }
  bool number_integer(Document::number_integer_t value) { return add(Json{value}) != nullptr; }
  bool number_unsigned(Document::number_unsigned_t value) { return add(Json{value}) != nullptr; }
  bool number_float(Document::number_float_t value, const std::string& /*text*/) {
    return add(Json{value}) != nullptr;
  }
  bool string(std::string& value) { return add(Json{std::move(value)}) != nullptr; }
  bool binary(Document::binary_t& /*value*/) { return refuse("binary values are not JSON"); }

  bool start_object(std::size_t /*size*/) { return open(Json{JsonObject{}}); }
  bool start_array(std::size_t /*size*/) { return open(Json{JsonArray{}}); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) {
      return refuse("the key " + quote(name) + " occurs twice in one object");
    }
    pending_key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& /*error*/) {
    return refuse(fmt::format("byte {}: not JSON near {}", position, quote(token)));
  }

  [[nodiscard]] Json take() { return std::move(root_); }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  // Appends a value to the innermost open container. Pointers in open_ stay valid, because only
  // that container's elements can move, and none of them is open.
  Json* add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (auto* members = std::get_if<JsonObject>(&parent.value)) {
      members->emplace_back(std::move(pending_key_), std::move(value));
      return &members->back().second;
    }
    auto& items = std::get<JsonArray>(parent.value);
    items.push_back(std::move(value));
    return &items.back();
  }

  bool open(Json container) {
    if (open_.size() >= max_depth_) {
      return refuse(fmt::format("nested deeper than {} levels", max_depth_));
    }
    open_.push_back(add(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  // Long files have many small objects, whose unused capacity would take half of the memory.
  bool close() {
    if (auto* members = std::get_if<JsonObject>(&open_.back()->value)) {
      members->shrink_to_fit();
    } else {
      std::get<JsonArray>(open_.back()->value).shrink_to_fit();
    }
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  Json root_;
  std::vector<Json*> open_;
  std::vector<OwnedNameSet> keys_;
  std::string pending_key_;
  std::string error_;
};

// nlohmann skips a byte order mark, and treats a NUL byte as the end, whatever follows it.
Status check_bytes(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) {
    return fail(ErrorCode::kCorrupt, "byte 1: a byte order mark; save the text without it");
  }
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return fail(ErrorCode::kCorrupt, "byte 1: text in UTF-16; save it as UTF-8");
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("byte {}: a NUL byte, which JSON does not allow", nul + 1));
  }
  return {};
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (const JsonObject* members = object()) {
    for (const auto& [name, member] : *members) {
      if (name == key) {
        return &member;
      }
    }
  }
  return nullptr;
}

Result<Json> parse_json(std::string_view text, std::size_t max_depth) {
  TRY(check_bytes(text));
  TreeBuilder builder(max_depth);
  try {
    if (!nlohmann::json::sax_parse(text, &builder)) {
      return fail(ErrorCode::kCorrupt, builder.error());
    }
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kCorrupt, std::string("not JSON: ") + error.what());
  }
  return builder.take();
}

namespace {

// Printable ASCII without the two characters that JSON escapes. Nearly all names consist of these
// characters.
constexpr CharacterTable kPlain([](char c) {
  return c >= ' ' && c <= '~' && c != '"' && c != '\\';
});

bool is_plain(std::string_view text) {
  bool plain = true;
  for (const char c : text) {
    plain &= kPlain.contains(c);
  }
  return plain;
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    out.append(1, '"').append(text).append(1, '"');
  } else {
    out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

std::string json_quote(std::string_view text) {
  std::string quoted;
  append_json(quoted, text);
  return quoted;
}

}  // namespace onnx_external
