#include "checkpoint/derivation_json.h"

#include <limits>
#include <optional>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/recipe_json.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> other_form() {
  return corrupt(
      R"(it must be a string, {"key": string, "recipe": [STEP, ...]}, or {"concat" or "stack": [KEY, ...], "dim": number, "recipe": [STEP, ...]})");
}

std::optional<std::int64_t> whole_number(const Json& json) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (json.uint() != nullptr && *json.uint() <= kMost) {
    return static_cast<std::int64_t>(*json.uint());
  }
  const auto* const negative = std::get_if<std::int64_t>(&json.value);
  return negative == nullptr ? std::nullopt : std::optional(*negative);
}

Result<Derivation> parse_at(const Json& json, std::size_t depth);

Status parse_parts(const Json& list, std::size_t depth, Derivation& out) {
  if (list.array() == nullptr || list.array()->empty()) {
    return other_form();
  }
  if (depth >= kMaxDerivedDepth) {
    return corrupt("it is nested more than " + std::to_string(kMaxDerivedDepth) + " levels deep");
  }
  for (const Json& part : *list.array()) {
    TRY_ASSIGN(auto parsed, parse_at(part, depth + 1));
    out.parts.push_back(std::move(parsed));
  }
  return {};
}

Status parse_member(const std::string& name, const Json& value, std::size_t depth,
                    Derivation& out) {
  if (name == "key" && value.string() != nullptr) {
    out.key = *value.string();
    return {};
  }
  if (name == "concat" || name == "stack") {
    out.kind = name == "concat" ? DerivationKind::kConcat : DerivationKind::kStack;
    return parse_parts(value, depth, out);
  }
  if (name == "recipe") {
    TRY_ASSIGN(out.recipe, parse_recipe(value));
    return ends_with_cast(out.recipe)
               ? Status(corrupt("a derived tensor cannot be cast; put the cast into the map"))
               : Status();
  }
  const auto dim = name == "dim" ? whole_number(value) : std::nullopt;
  if (!dim) {
    return other_form();
  }
  out.dim = *dim;
  return {};
}

Result<Derivation> parse_at(const Json& json, std::size_t depth) {
  Derivation out;
  if (json.string() != nullptr) {
    out.key = *json.string();
    return out;
  }
  if (json.object() == nullptr) {
    return other_form();
  }
  for (const auto& [name, value] : *json.object()) {
    TRY(parse_member(name, value, depth, out));
  }
  const bool has_key = json.find("key") != nullptr;
  const int kinds = (has_key ? 1 : 0) + (json.find("concat") != nullptr ? 1 : 0) +
                    (json.find("stack") != nullptr ? 1 : 0);
  return kinds == 1 && (json.find("dim") != nullptr) != has_key ? Result<Derivation>(std::move(out))
                                                                : other_form();
}

}  // namespace

Result<Derivation> parse_derivation(const Json& key) {
  return parse_at(key, 0);
}

Result<std::vector<DerivedTensor>> parse_derived(const Json& json) {
  if (json.object() == nullptr) {
    return corrupt(R"("derived" must be {NAME: KEY, ...})");
  }
  std::vector<DerivedTensor> derived;
  for (const auto& [name, key] : *json.object()) {
    TRY_ASSIGN_IN("derived tensor " + quote(name), auto from, parse_derivation(key));
    derived.push_back({name, std::move(from)});
  }
  return derived;
}

std::string derivation_json(const Derivation& from) {
  const std::string recipe = from.recipe.empty() ? "" : ", \"recipe\": " + recipe_json(from.recipe);
  if (from.kind == DerivationKind::kKey) {
    const std::string key = json_quote(from.key);
    return recipe.empty() ? key : "{\"key\": " + key + recipe + "}";
  }
  std::string text = from.kind == DerivationKind::kConcat ? "{\"concat\": [" : "{\"stack\": [";
  for (const Derivation& part : from.parts) {
    text += (&part == from.parts.data() ? "" : ", ") + derivation_json(part);
  }
  return text + "], \"dim\": " + std::to_string(from.dim) + recipe + "}";
}

std::string derived_json(std::span<const DerivedTensor> derived, const std::string& line_start) {
  std::string text = "{";
  for (const DerivedTensor& tensor : derived) {
    text += (text.size() > 1 ? "," : "") + line_start;
    text += json_quote(tensor.name) + ": " + derivation_json(tensor.from);
  }
  return text + "}";
}

}  // namespace onnx_external
