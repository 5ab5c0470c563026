#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "checkpoint/derivation_json.h"
#include "save/manifest.h"

namespace onnx_external {
namespace {

constexpr std::array kUnmatched{
    std::pair(Unmatched::kSkip, std::string_view("skip")),
    std::pair(Unmatched::kKeep, std::string_view("keep")),
};

void append_member(std::string& out, std::string_view name, std::string_view json) {
  out += out.empty() ? "{" : ", ";
  out.append(json_quote(name)).append(": ").append(json);
}

std::string list_json(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    out.append(out.size() > 1 ? ", " : "").append(json_quote(text));
  }
  return out + "]";
}

std::string renames_json(const std::vector<Rename>& renames) {
  std::string out = "[";
  for (const Rename& rename : renames) {
    out.append(out.size() > 1 ? ", [" : "[").append(json_quote(rename.pattern)).append(", ");
    out.append(json_quote(rename.replacement)).append(rename.every ? ", true]" : ", false]");
  }
  return out + "]";
}

Error wrong_kind(std::string_view name) {
  return {ErrorCode::kCorrupt, json_quote(name) + " has another type than this version writes"};
}

// The value of a member, where the object has it; an error when it is of another type.
template <typename T>
Status take(const Json& object, std::string_view name, std::optional<T>& out) {
  const Json* const member = object.find(name);
  if (member == nullptr) {
    return {};
  }
  const T* const value = std::get_if<T>(&member->value);
  if (value == nullptr) {
    return fail(wrong_kind(name));
  }
  out = *value;
  return {};
}

Status take_names(const Json& object, std::string_view name, std::vector<std::string>& out) {
  std::optional<JsonArray> list;
  Status status = take(object, name, list);
  for (const Json& entry : list.value_or(JsonArray())) {
    if (entry.string() == nullptr) {
      return fail(wrong_kind(name));
    }
    out.push_back(*entry.string());
  }
  return status;
}

Status take_renames(const Json& object, std::vector<Rename>& out) {
  std::optional<JsonArray> list;
  Status status = take(object, "renames", list);
  for (const Json& entry : list.value_or(JsonArray())) {
    const JsonArray* const rename = entry.array();
    const bool* const every =
        rename != nullptr && rename->size() == 3 ? std::get_if<bool>(&(*rename)[2].value) : nullptr;
    if (every == nullptr || (*rename)[0].string() == nullptr || (*rename)[1].string() == nullptr) {
      return fail(wrong_kind("renames"));
    }
    out.push_back({*(*rename)[0].string(), *(*rename)[1].string(), *every});
  }
  return status;
}

Status take_choices(const Json& object, MappingOptions& out) {
  std::optional<std::string> unmatched;
  std::optional<bool> partial;
  TRY(take(object, "unmatched", unmatched));
  TRY(take(object, "partial", partial));
  out.partial = partial.value_or(false) ? Partial::kAllow : Partial::kRefuse;
  for (const auto& [value, name] : kUnmatched) {
    if (unmatched == name) {
      out.unmatched = value;
      return {};
    }
  }
  return unmatched ? fail(wrong_kind("unmatched")) : Status();
}

}  // namespace

std::string options_json(const MappingOptions& options) {
  std::string out;
  for (const auto& [value, name] : kUnmatched) {
    if (options.unmatched == value) {
      append_member(out, "unmatched", json_quote(name));
    }
  }
  if (options.partial == Partial::kAllow) {
    append_member(out, "partial", "true");
  }
  if (options.prefix) {
    append_member(out, "prefix", json_quote(*options.prefix));
  }
  if (!options.renames.empty()) {
    append_member(out, "renames", renames_json(options.renames));
  }
  for (const auto& [name, list] : {std::pair("inputs", &options.inputs),
                                   {"keep", &options.keep},
                                   {"ignore", &options.ignore}}) {
    if (!list->empty()) {
      append_member(out, name, list_json(*list));
    }
  }
  if (!options.derived.empty()) {
    append_member(out, "derived", derived_json(options.derived, "\n"));
  }
  return out.empty() ? out : out + "}";
}

Result<MappingOptions> parse_options(const Json& json) {
  if (json.object() == nullptr) {
    return fail(wrong_kind("options"));
  }
  MappingOptions options;
  if (const Json* const derived = json.find("derived"); derived != nullptr) {
    TRY_ASSIGN(options.derived, parse_derived(*derived));
  }
  TRY(take_choices(json, options));
  TRY(take(json, "prefix", options.prefix));
  TRY(take_renames(json, options.renames));
  TRY(take_names(json, "inputs", options.inputs));
  TRY(take_names(json, "keep", options.keep));
  TRY(take_names(json, "ignore", options.ignore));
  return options;
}

}  // namespace onnx_external
