#include "checkpoint/quantized/module_settings.h"

#include <re2/re2.h>

#include <algorithm>
#include <cctype>

#include "base/dotted_names.h"
#include "base/text.h"

namespace onnx_external {
namespace {

constexpr std::string_view kExclude = "-:";
constexpr std::string_view kInclude = "+:";
constexpr std::string_view kRegex = "re:";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns whether a pattern of words, "." and "\\." matches the beginning of the text; nullopt for
// other patterns. Settings may have such a pattern for each of thousands of modules, and compiling
// every pattern for every module would take minutes.
std::optional<bool> match_names(std::string_view pattern, std::string_view text) {
  pattern.remove_prefix(pattern.starts_with('^') ? 1 : 0);
  const bool to_end = pattern.ends_with('$');
  pattern.remove_suffix(to_end ? 1 : 0);
  bool matches = true;
  std::size_t at = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i, ++at) {
    const bool is_dot = pattern.substr(i, 2) == "\\.";
    i += is_dot ? 1 : 0;
    if (!is_word(pattern[i]) && pattern[i] != '.') {
      return std::nullopt;
    }
    const bool is_any = pattern[i] == '.' && !is_dot;
    matches = matches && at < text.size() && (is_any || text[at] == pattern[i]);
  }
  return matches && (!to_end || at == text.size());
}

std::optional<bool> match(std::string_view pattern, std::string_view text, RE2::Anchor anchor) {
  const RE2 expression(re2::StringPiece(pattern.data(), pattern.size()), RE2::Quiet);
  if (!expression.ok()) {
    return std::nullopt;
  }
  return expression.Match(re2::StringPiece(text.data(), text.size()), 0, text.size(), anchor,
                          nullptr, 0);
}

// An entry of AutoRound's "extra_config": that of the module's name, or the first whose regular
// expression is found in it. A plain name is not used as an expression: it may be the beginning of
// another module's name.
const Json* extra_entry(const Json* entries, const std::string& module) {
  constexpr std::string_view kOfExpressions = "\\^$*+?{}[]|()";
  const Json* const own = entries == nullptr ? nullptr : entries->find(module);
  if (own != nullptr || entries == nullptr || entries->object() == nullptr) {
    return own;
  }
  for (const auto& [pattern, value] : *entries->object()) {
    const bool is_plain = pattern.find_first_of(kOfExpressions) == std::string::npos;
    if (is_plain ? contains_components(module, pattern)
                 : is_found_in(pattern, module).value_or(false)) {
      return &value;
    }
  }
  return nullptr;
}

// The first entry of GPTQModel's "dynamic" that matches.
const Json* dynamic_entry(const Json* patterns, const std::string& module) {
  const JsonObject* const entries = patterns == nullptr ? nullptr : patterns->object();
  if (entries == nullptr) {
    return nullptr;
  }
  for (const auto& [pattern, value] : *entries) {
    const std::string_view text(pattern);
    if (text == module ||
        (!text.starts_with(kExclude) &&
         matches_start(text.starts_with(kInclude) ? text.substr(kInclude.size()) : text, module)
             .value_or(false))) {
      return &value;
    }
  }
  return nullptr;
}

bool names_module(const Json& targets, const std::string& module) {
  const JsonArray* const list = targets.array();
  return list != nullptr && std::any_of(list->begin(), list->end(), [&](const Json& target) {
           const std::string* const text = target.string();
           if (text == nullptr) {
             return false;
           }
           return text->starts_with(kRegex)
                      ? matches_start(std::string_view(*text).substr(kRegex.size()), module)
                            .value_or(false)
                      : *text == module;
         });
}

}  // namespace

std::optional<bool> matches_start(std::string_view pattern, std::string_view text) {
  const auto by_names = match_names(pattern, text);
  return by_names ? by_names : match(pattern, text, RE2::ANCHOR_START);
}

std::optional<bool> is_found_in(std::string_view pattern, std::string_view text) {
  return match(pattern, text, RE2::UNANCHORED);
}

std::optional<std::int64_t> number_for(const QuantSettings& settings, const std::string& module,
                                       std::string_view key) {
  const Json* const overrides = settings.config.find("overrides");
  const Json* const candidates[] = {overrides == nullptr ? nullptr : overrides->find(module),
                                    dynamic_entry(settings.config.find("dynamic"), module),
                                    extra_entry(settings.config.find("extra_config"), module),
                                    settings.config.find(module)};
  for (const Json* const one : candidates) {
    if (const auto number = json_integer(one == nullptr ? nullptr : one->find(key))) {
      return number;
    }
  }
  return settings.integer(key);
}

std::vector<const Json*> weight_args(const QuantSettings& settings, const std::string& module) {
  std::vector<const Json*> named;
  std::vector<const Json*> others;
  const JsonObject* const groups = settings.config.get<JsonObject>("config_groups");
  if (groups == nullptr) {
    return others;
  }
  for (const auto& [name, group] : *groups) {  // what is returned points into it
    const Json* const weights = group.find("weights");
    const Json* const targets = group.find("targets");
    if (weights == nullptr || weights->object() == nullptr) {
      continue;
    }
    const bool is_named = targets != nullptr && names_module(*targets, module);
    (is_named ? named : others).push_back(weights);
  }
  return named.empty() ? others : named;
}

const Json* quark_weight(const QuantSettings& settings, const std::string& module) {
  const Json* found = nullptr;
  if (const auto* const layers = settings.config.get<JsonObject>("layer_quant_config")) {
    for (const auto& [pattern, own] : *layers) {
      found = found == nullptr && matches_pattern(module, pattern) ? own.find("weight") : found;
    }
  }
  if (const auto* const types = settings.config.get<JsonObject>("layer_type_quant_config")) {
    for (const auto& [type, own] : *types) {
      found = found == nullptr && type.ends_with("Linear") ? own.find("weight") : found;
    }
  }
  const Json* const all = settings.config.find("global_quant_config");
  return found == nullptr && all != nullptr ? all->find("weight") : found;
}

}  // namespace onnx_external
