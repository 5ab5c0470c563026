#include "mapping/averaged_copies.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/name_map.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kWordEnds = "._/";
constexpr std::array kMarks = {"ema"sv, "shadow"sv, "averaged"sv, "swa"sv};
constexpr std::array kContainers = {"model"sv, "module"sv, "params"sv};

// A name without separators: some libraries replace '.' by '_', or by nothing.
std::string squeezed(std::string_view name) {
  std::string text;
  std::copy_if(name.begin(), name.end(), std::back_inserter(text),
               [](char c) { return kWordEnds.find(c) == std::string_view::npos; });
  return text;
}

struct MarkedName {
  std::string rest;                // squeezed, without the marks
  std::string without_containers;  // also without leading components such as 'model'
  std::size_t mark_end = 0;        // behind the first mark; 0 if other words stand before it
};

template <std::size_t kCount>
bool is_one_of(std::string_view word, const std::array<std::string_view, kCount>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Nullopt for a name without a mark.
std::optional<MarkedName> marked(std::string_view name) {
  MarkedName found;
  bool has_mark = false;
  bool only_containers = true;
  for (std::size_t start = 0; start < name.size();) {
    const std::size_t end = std::min(name.find_first_of(kWordEnds, start), name.size());
    const std::string_view word = name.substr(start, end - start);
    start = end + 1;
    if (is_one_of(word, kMarks)) {
      found.mark_end = !has_mark && only_containers ? std::min(start, name.size()) : found.mark_end;
      has_mark = true;
      continue;
    }
    only_containers = only_containers && is_one_of(word, kContainers);
    found.rest += word;
    found.without_containers += only_containers ? std::string_view() : word;
  }
  return has_mark ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace

std::vector<AveragedCopy> find_averaged_copies(const MappingTask& task,
                                               std::span<const std::uint32_t> keys) {
  const std::vector<MappingKey>& all = task.keys.keys;
  if (std::none_of(keys.begin(), keys.end(),
                   [&](std::uint32_t key) { return marked(all[key].name).has_value(); })) {
    return {};
  }
  OwnedNameMap<std::uint32_t> used;
  for (std::uint32_t key = 0; key < all.size(); ++key) {
    if (task.key_used[key]) {
      used.emplace(squeezed(all[key].name), key);
      if (const auto name = squeezed(task.key_names[key].name); !used.contains(name)) {
        used.emplace(name, key);
      }
    }
  }
  std::vector<AveragedCopy> copies;
  for (const std::uint32_t key : keys) {
    const auto name = marked(all[key].name);
    if (!name) {
      continue;
    }
    auto weight = used.find(name->rest);
    weight = weight == used.end() ? used.find(name->without_containers) : weight;
    if (weight != used.end() && all[weight->second].shape == all[key].shape) {
      copies.push_back({key, weight->second, all[key].name.substr(0, name->mark_end)});
    }
  }
  return copies;
}

std::string expression_for(std::span<const AveragedCopy> copies) {
  const std::string& mark = copies.front().mark;
  const bool is_shared =
      !mark.empty() && std::all_of(copies.begin(), copies.end(),
                                   [&](const AveragedCopy& copy) { return copy.mark == mark; });
  return is_shared ? "^" + RE2::QuoteMeta(mark) : "(^|[._])(ema|shadow|averaged|swa)[._]";
}

}  // namespace onnx_external
