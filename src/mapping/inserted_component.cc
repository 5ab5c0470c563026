#include "mapping/inserted_component.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/name_refinement.h"
#include "mapping/slot_roles.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxNamesTried = 512;
constexpr std::size_t kMaxComponents = 24;
constexpr std::string_view kParallel = "module";

// One component that is only in the longer of two names.
struct Insertion {
  std::string component;
  std::string before;  // the part before the component, without the dot at its end
  std::string longer;
  std::string shorter;
};
using Insertions = std::map<std::string, std::vector<Insertion>>;

// Names that are views of the task, each with its index there, in the order of the task.
struct NamedPlaces {
  std::vector<std::string_view> names;
  NameMap<std::uint32_t> places;

  void add(std::string_view name, std::uint32_t place) {
    if (places.emplace(name, place).second) {
      names.push_back(name);
    }
  }
};

// Returns the name in `shorter` with which `without` ends, after a dot or as a whole.
std::optional<std::string_view> name_at_end(const NamedPlaces& shorter, std::string_view without,
                                            std::size_t inserted_at) {
  for (std::size_t at = 0; at <= inserted_at; at = without.find('.', at) + 1) {
    if (const auto found = shorter.places.find(without.substr(at)); found != shorter.places.end()) {
      return found->first;
    }
    if (without.find('.', at) == std::string_view::npos) {
      break;
    }
  }
  return std::nullopt;
}

// All insertions that make one of the longer names of one of the shorter ones, by component.
template <typename Fits>
Insertions insertions(const NamedPlaces& longer, const NamedPlaces& shorter, const Fits& fits) {
  Insertions found;
  const std::size_t tried = std::min(longer.names.size(), kMaxNamesTried);
  for (const std::string_view name : std::span(longer.names).first(tried)) {
    std::size_t start = 0;
    for (std::size_t part = 0; part < kMaxComponents; ++part) {
      const std::size_t end = name.find('.', start);
      if (end == std::string_view::npos) {
        break;
      }
      std::string component(name.substr(start, end - start));
      std::string without(name.substr(0, start));
      without += name.substr(end + 1);
      const auto other = name_at_end(shorter, without, start);
      if (other && fits(longer.places.at(name), shorter.places.at(*other))) {
        const std::string_view before = name.substr(0, start == 0 ? 0 : start - 1);
        found[component].push_back(
            {component, std::string(before), std::string(name), std::string(*other)});
      }
      start = end + 1;
    }
  }
  return found;
}

// The component that explains most names, if it explains most of those that are left over.
const std::vector<Insertion>* best_of(const Insertions& found, std::size_t left) {
  const auto best = std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (best == found.end() || best->second.size() * 2 <= std::min(left, kMaxNamesTried)) {
    return nullptr;
  }
  // A single pair may be two weights that only have similar names.
  return best->second.size() > 1 || best->first == kParallel ? &best->second : nullptr;
}

// The one path before all insertions; nullopt if there are several.
std::optional<std::string> common_path(const std::vector<Insertion>& all) {
  const bool is_one = std::all_of(all.begin(), all.end(), [&](const Insertion& one) {
    return one.before == all.front().before;
  });
  return is_one ? std::optional(all.front().before) : std::nullopt;
}

std::string dotted(const std::string& path) {
  return path.empty() ? "" : path + ".";
}

// The expression that takes the component out of the keys, or puts it into them.
std::string rename_of(const std::vector<Insertion>& all, bool keys_are_longer) {
  const std::string& component = all.front().component;
  const auto path = common_path(all);
  if (!path) {
    return keys_are_longer ? "s/\\." + RE2::QuoteMeta(component) + "\\././g" : "";
  }
  const std::string shorter = dotted(*path);
  const std::string longer = shorter + component + ".";
  return keys_are_longer ? "s/^" + RE2::QuoteMeta(longer) + "/" + shorter + "/"
                         : "s/^" + RE2::QuoteMeta(shorter) + "/" + longer + "/";
}

struct LeftNames {
  NamedPlaces keys;
  NamedPlaces slots;
};

LeftNames left_names(const MappingTask& task) {
  LeftNames left;
  for (std::uint32_t key = 0; key < task.key_names.size(); ++key) {
    if (!task.key_used[key] && task.keys.keys[key].shape.size() > 0) {
      left.keys.add(task.key_names[key].name, key);
    }
  }
  for (std::uint32_t slot = 0; slot < task.slot_names.size(); ++slot) {
    const SlotName& name = task.slot_names[slot];
    if (name.open && name.role == SlotRole::kByName && !is_invented_name(name.name)) {
      left.slots.add(name.name, slot);
    }
  }
  return left;
}

bool may_stand_in_expression(const std::vector<Insertion>& all) {
  return std::all_of(all.begin(), all.end(), [](const Insertion& one) {
    return one.longer.find_first_of("/\\") == std::string::npos;
  });
}

}  // namespace

bool add_inserted_component(const MappingTask& task, Refusal& refusal) {
  const LeftNames left = left_names(task);
  if (left.keys.names.empty() || left.slots.names.empty()) {
    return false;
  }
  const auto of_keys =
      insertions(left.keys, left.slots,
                 [&](std::uint32_t key, std::uint32_t slot) { return agrees(task, slot, key); });
  const auto of_slots =
      insertions(left.slots, left.keys,
                 [&](std::uint32_t slot, std::uint32_t key) { return agrees(task, slot, key); });
  const auto* const out = best_of(of_keys, left.keys.names.size());
  const auto* const in = best_of(of_slots, left.keys.names.size());
  const bool keys_are_longer = out != nullptr && (in == nullptr || out->size() >= in->size());
  const auto* const best = keys_are_longer ? out : in;
  if (best == nullptr) {
    return false;
  }
  const Insertion& shown = best->front();
  const std::string& key = keys_are_longer ? shown.longer : shown.shorter;
  const std::string& slot = keys_are_longer ? shown.shorter : shown.longer;
  refusal.drop_advice();
  refusal.add_lead(std::string(keys_are_longer ? "the keys" : "the slots") + " have " +
                   quote(shown.component) + " in their names, and the " +
                   (keys_are_longer ? "slots" : "keys") + " do not: key " + quote(key) +
                   " for slot " + quote(slot) +
                   (shown.component == kParallel
                        ? ", because torch.nn.DataParallel was applied to a part of the model"
                        : ""));
  const std::string rename = rename_of(*best, keys_are_longer);
  if (!rename.empty() && may_stand_in_expression(*best)) {
    refusal.add_remedy({RemedyOption::kRename, rename, "to make the names match"});
  }
  refusal.add_remedy({RemedyOption::kMap, "FILE", "to say which key fills which slot"});
  return true;
}

}  // namespace onnx_external
