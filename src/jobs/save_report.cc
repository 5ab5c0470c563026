#include "jobs/save_report.h"

#include <cstddef>
#include <string>
#include <utility>

#include "base/name_map.h"
#include "mapping/verdict_lists.h"
#include "save/plan_checks.h"

namespace onnx_external {

std::vector<LeftKey> reported_keys(const MappingKeys& keys, const Mapping& mapping) {
  std::vector<LeftKey> left;
  for (std::size_t key = 0; key < mapping.keys.size(); ++key) {
    const MappedKey& state = mapping.keys[key];
    if (state.verdict != KeyVerdict::kUsed) {
      const bool is_tied = state.verdict == KeyVerdict::kTied;
      left.push_back({keys.keys[key].name, state.verdict, state.in_unused_module,
                      is_tied ? keys.keys[state.tied_to].name : ""});
    }
  }
  return left;
}

std::vector<LeftName> reported_names(const Model& model, const Mapping& mapping,
                                     const std::vector<std::string>& by_option) {
  std::vector<LeftName> left = left_names(model.facts(), mapping);
  const NameSet kept(by_option.begin(), by_option.end());
  for (LeftName& name : left) {
    name.by_option = name.verdict == SlotVerdict::kKept && kept.contains(name.name);
  }
  // The model's own list has the missing slots and more.
  std::erase_if(left, [](const LeftName& name) { return name.verdict == SlotVerdict::kMissing; });
  for (std::string& name : names_left_open(model, mapping)) {
    left.push_back({std::move(name), SlotVerdict::kMissing});
  }
  return left;
}

std::vector<std::string> SavedModel::names_with(std::initializer_list<SlotVerdict> verdicts) const {
  return onnx_external::names_with(verdicts, left);
}

std::vector<std::string> SavedModel::inputs_left() const {
  return names_with({SlotVerdict::kUserInput, SlotVerdict::kUnconfirmed});
}

std::vector<std::string> SavedModel::initializers_kept() const {
  return names_with({SlotVerdict::kKept, SlotVerdict::kStale, SlotVerdict::kOld});
}

std::vector<std::string> SavedModel::slots_left() const {
  return names_with({SlotVerdict::kMissing});
}

std::vector<std::string> SavedModel::left_old() const {
  return names_with({SlotVerdict::kOld, SlotVerdict::kStale, SlotVerdict::kStaleConstant});
}

std::vector<std::string> SaveReport::keys_with(std::initializer_list<KeyVerdict> verdicts) const {
  return names_with(verdicts, keys);
}

std::vector<std::string> SaveReport::unmatched_keys() const {
  std::vector<std::string> names;
  for (const LeftKey& key : keys) {
    if (key.verdict != KeyVerdict::kTied) {
      names.push_back(key.name);
    }
  }
  return names;
}

std::vector<std::string> SaveReport::skipped_keys() const {
  return keys_with({KeyVerdict::kUnused, KeyVerdict::kAdapter});
}

}  // namespace onnx_external
