#include "mapping/own_prefix.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// The names of slots, each with the key that fills it by name.
using Fills = std::set<std::pair<std::string_view, std::uint32_t>>;

Fills fills_by_name(const MappingTask& task) {
  Fills fills;
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    const std::optional<Fill>& fill = task.fills[slot];
    if (fill && fill->rule != Rule::kMap && fill->rule != Rule::kLearned) {
      fills.emplace(task.graph.slots[slot].name, fill->key);
    }
  }
  return fills;
}

// A bad expression matches nothing here; it is reported where keys are sorted.
bool is_ignored(const std::string& key, const std::vector<std::unique_ptr<RE2>>& expressions) {
  return std::any_of(expressions.begin(), expressions.end(), [&](const auto& expression) {
    return expression->ok() && RE2::PartialMatch(key, *expression);
  });
}

// The prefix of keys outside the given one that fit the graph about as well; "" if there is none.
Result<std::string> prefix_passed_over(const MappingTask& given, std::uint64_t filled) {
  MappingOptions options = given.options;
  options.prefix.reset();
  TRY_ASSIGN(auto task, make_task(given.graph, given.keys, options));
  std::vector<std::unique_ptr<RE2>> ignored;
  for (const std::string& expression : options.ignore) {
    ignored.push_back(std::make_unique<RE2>(expression, RE2::Quiet));
  }
  for (std::size_t key = 0; key < task.key_names.size(); ++key) {
    task.key_names[key].usable =
        !given.key_names[key].usable && !is_ignored(task.keys.keys[key].name, ignored);
  }
  const Aligned best = best_key_prefix(task);
  return best.key_prefix.kind == KeyPrefix::Kind::kRemove && best.score * 2 >= filled
             ? best.key_prefix.prefix
             : std::string();
}

}  // namespace

std::string_view own_name(std::string_view graph_name) {
  constexpr std::string_view kEnding = ".onnx";
  if (graph_name.ends_with(kEnding)) {
    graph_name.remove_suffix(kEnding.size());
  }
  return graph_name;
}

std::optional<std::string_view> before_own_name(const MappingTask& task, KeyPrefix::Kind kind,
                                                std::string_view prefix) {
  constexpr std::string_view kWrapper = ".module.";
  if (task.own_name.empty() || kind != KeyPrefix::Kind::kRemove) {
    return std::nullopt;
  }
  const bool is_dotted = prefix.find_first_of("./") != std::string_view::npos;
  prefix.remove_suffix(prefix.ends_with(kWrapper) ? kWrapper.size() : 1);
  if (!prefix.ends_with(task.own_name)) {
    return std::nullopt;
  }
  prefix.remove_suffix(task.own_name.size());
  const std::string_view separators = is_dotted ? "./" : "_";
  const bool is_component =
      prefix.empty() || separators.find(prefix.back()) != std::string_view::npos;
  return is_component ? std::optional(prefix) : std::nullopt;
}

Status check_prefix_of_all(std::span<const NamedTask> graphs) {
  const MappingOptions& options = graphs.front().task->options;
  if (graphs.size() == 1 || !options.prefix || options.prefix->empty()) {
    return {};
  }
  std::map<Fills, std::string_view> seen;
  for (const NamedTask& graph : graphs) {
    Fills fills = fills_by_name(*graph.task);
    const std::uint64_t filled = fills.size();
    const auto [first, fresh] = seen.emplace(std::move(fills), graph.name);
    if (fresh || filled == 0) {
      continue;
    }
    TRY_ASSIGN(const auto other, prefix_passed_over(*graph.task, filled));
    if (!other.empty()) {
      return fail_with(ErrorCode::kAmbiguous,
                       quote(first->second) + " and " + quote(graph.name) +
                           " would both get the keys under " + quote(*options.prefix) +
                           ", but the keys under " + quote(other) +
                           " also match; leave out the prefix to give each graph the keys under "
                           "its own name, or save the graphs one by one",
                       {{RemedyOption::kIgnore, "^" + RE2::QuoteMeta(other),
                         "if no graph uses the keys under " + quote(other)}});
    }
  }
  return {};
}

}  // namespace onnx_external
