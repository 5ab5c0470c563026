#include "mapping/weight_norm_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

constexpr std::array<std::string_view, 2> kOldEnds = {"_g", "_v"};
constexpr std::array<std::string_view, 2> kNewEnds = {".original0", ".original1"};
constexpr std::string_view kParametrizations = "parametrizations";

// The common part of both spellings, such as "conv.weight", and which of its two parts a name
// means.
struct WeightPart {
  std::string weight;  // empty for a name without such a spelling
  std::size_t part = 0;
};

enum class NormSpelling : std::uint8_t { kOld, kNew };

WeightPart parse_part(std::string_view name, NormSpelling spelling) {
  const auto& ends = spelling == NormSpelling::kOld ? kOldEnds : kNewEnds;
  const auto end = std::find_if(ends.begin(), ends.end(),
                                [&](std::string_view each) { return name.ends_with(each); });
  if (end == ends.end()) {
    return {};
  }
  name.remove_suffix(end->size());
  const auto part = static_cast<std::size_t>(end - ends.begin());
  if (spelling == NormSpelling::kOld) {
    return {std::string(name), part};
  }
  const std::string_view owner = module_of(name);  // "conv.parametrizations"
  const std::string_view module = module_of(owner);
  if (owner.substr(module.empty() ? 0 : module.size() + 1) != kParametrizations) {
    return {};
  }
  const std::string_view parameter = name.substr(owner.size() + 1);
  return {(module.empty() ? "" : std::string(module) + ".") + std::string(parameter), part};
}

std::string spelled(const WeightPart& part, NormSpelling spelling) {
  if (spelling == NormSpelling::kOld) {
    return part.weight + std::string(kOldEnds[part.part]);
  }
  const std::string_view module = module_of(part.weight);
  const std::string_view parameter =
      std::string_view(part.weight).substr(module.empty() ? 0 : module.size() + 1);
  return (module.empty() ? "" : std::string(module) + ".") + std::string(kParametrizations) + "." +
         std::string(parameter) + std::string(kNewEnds[part.part]);
}

// The slots of one spelling, to be met by names that may have a prefix, or lack one.
class SpelledSlots {
 public:
  SpelledSlots(const MappingTask& task, NormSpelling spelling) {
    for (const SlotName& slot : task.slot_names) {
      if (!parse_part(slot.name, spelling).weight.empty()) {
        names_.insert(slot.name);
        for (const std::size_t at : boundaries(slot.name)) {
          ends_.insert(slot.name.substr(at));
        }
      }
    }
  }

  [[nodiscard]] bool empty() const { return names_.size() == 0; }

  // Returns whether a slot has this name, except that one of the two may have a prefix.
  [[nodiscard]] bool meet(std::string_view key) const {
    const std::vector<std::size_t> starts = boundaries(key);
    return names_.contains(key) || ends_.contains(key) ||
           std::any_of(starts.begin(), starts.end(),
                       [&](std::size_t at) { return names_.contains(key.substr(at)); });
  }

 private:
  NameSet names_;
  NameSet ends_;
};

void respell(NormSpelling from, NormSpelling to, MappingTask& task) {
  const auto is_from = [&](const KeyName& key) {
    return !parse_part(key.name, from).weight.empty();
  };
  const SpelledSlots wanted(task, to);
  if (wanted.empty() || std::none_of(task.key_names.begin(), task.key_names.end(), is_from)) {
    return;
  }
  NameSet present;
  for (const KeyName& key : task.key_names) {
    present.insert(key.name);
  }
  const SpelledSlots others(task, from);
  for (KeyName& key : task.key_names) {
    const WeightPart part = parse_part(key.name, from);
    const WeightPart other{part.weight, 1 - part.part};
    if (part.weight.empty() || !present.contains(spelled(other, from)) ||
        present.contains(spelled(part, to)) || present.contains(spelled(other, to)) ||
        others.meet(key.name)) {
      continue;
    }
    key.name = task.changed_names.emplace_back(spelled(part, to));
    key.refined = task.changed_names.emplace_back(refine(key.name));
  }
}

}  // namespace

void respell_weight_norm(MappingTask& task) {
  respell(NormSpelling::kOld, NormSpelling::kNew, task);
  respell(NormSpelling::kNew, NormSpelling::kOld, task);
}

}  // namespace onnx_external
