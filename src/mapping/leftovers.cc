// Decides which of the slots that no key fills need one.
#include "mapping/leftovers.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"
#include "mapping/buffer_names.h"
#include "mapping/folded_sources.h"
#include "mapping/leftover_keys.h"
#include "mapping/name_refinement.h"
#include "mapping/user_inputs.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxLikeSlots = 16;

std::uint64_t elements_of(const Shape& shape) {
  return element_count(shape).value_or(0);
}

// 0 if a dimension is unknown.
std::uint64_t elements_of(const Slot& slot) {
  return slot.shape ? elements_of(shape_or(*slot.shape, 0)) : 0;
}

class SlotSorter {
 public:
  SlotSorter(const MappingTask& task, const KeyPrefix& key_prefix, const MappingEvidence& evidence,
             Leftovers& leftovers)
      : task_(task),
        key_prefix_(key_prefix),
        evidence_(evidence),
        leftovers_(leftovers),
        sources_(task.graph) {
    states_origins_ = states_origins(task.graph);
    may_be_submodule_ = std::any_of(task.fills.begin(), task.fills.end(), suggests_submodule);
    for (std::uint32_t key = 0; key < task.keys.keys.size(); ++key) {
      const std::uint64_t elements = elements_of(task.keys.keys[key].shape);
      std::vector<std::uint32_t>& alike = keys_of_size_[elements];
      if (alike.size() < kMaxLikeSlots) {
        alike.push_back(key);
      }
      const MappingKey& described = task.keys.keys[key];
      const bool is_integer = !is_floating(described.dtype);
      has_number_ |= elements == 1 && !(is_integer && is_counter_name(described.name));
      has_indices_ |=
          elements > 1 && is_integer && !is_baked_buffer(described.name, described.shape);
    }
  }

  Status sort() {
    for (std::uint32_t i = 0; i < task_.graph.slots.size(); ++i) {
      if (task_.fills[i]) {
        filled_names_.insert(task_.graph.slots[i].name);
      } else {
        TRY(sort_one(i));
      }
    }
    list_constants();
    return {};
  }

 private:
  // If the names match only with an added prefix or by a suffix, the checkpoint may be that of a
  // submodule, without the values of the rest of the graph.
  static bool suggests_submodule(const std::optional<Fill>& fill) {
    return fill && (fill->rule == Rule::kPrefixAdded || fill->rule == Rule::kSuffix);
  }

  Status sort_one(std::uint32_t i) {
    const Slot& slot = task_.graph.slots[i];
    const SlotRole role = task_.slot_names[task_.name_of_slot[i]].role;
    switch (slot.kind) {
      case SlotKind::kGraphInput:
        break;  // left to sort_inputs()
      case SlotKind::kUndefinedName:
        leftovers_.missing.push_back(i);
        break;
      case SlotKind::kIdentityOutput:
        // It has the value that it reads. If its name is that of a weight, this is another weight's
        // value.
        if (role != SlotRole::kNone && role != SlotRole::kKept && is_lost_weight(slot)) {
          leftovers_.missing.push_back(i);
        }
        break;
      case SlotKind::kInitializer:
        return sort_initializer(i, role);
    }
    return {};
  }

  [[nodiscard]] bool is_lost_weight(const Slot& slot) const {
    return filled_names_.contains(slot.merged_into) &&
           slot.name.find_first_of("/:") == std::string::npos;
  }

  Status sort_initializer(std::uint32_t i, SlotRole role) {
    const Slot& slot = task_.graph.slots[i];
    if (!slot.has_data) {
      leftovers_.missing.push_back(i);
      return {};
    }
    if (role == SlotRole::kKept || elements_of(slot) == 0 || is_exempt(slot)) {
      leftovers_.kept.push_back(i);
      return {};
    }
    // Integers under a weight's name are weights, too (a permutation, a table of indices), unless
    // the name is a path, as the exporter makes them up.
    const bool is_integer = !onnx_is_floating(slot.elem_type);
    const bool is_path = slot.name.find_first_of("/:") != std::string::npos;
    if (names_a_weight(slot) && !(is_integer && is_path)) {
      leftovers_.missing.push_back(i);
      return {};
    }
    const bool folded = !slot.folded_from.empty();
    if (folded ? !depends_on_weights(slot) : is_integer && !may_be_computed(slot)) {
      leftovers_.kept.push_back(i);
      return {};
    }
    TRY_ASSIGN(const auto proved, equals_a_key(i));
    const bool right = proved || (!is_integer && elements_of(slot) == 1 && is_constant(slot));
    (right ? leftovers_.kept : leftovers_.stale).push_back(i);
    return {};
  }

  // True for data that no checkpoint has, according to the exporter, its name or its use.
  [[nodiscard]] bool is_exempt(const Slot& slot) const {
    const bool no_weight =
        slot.origin == SlotOrigin::kConstant || slot.origin == SlotOrigin::kLocalBuffer;
    const bool scales = std::binary_search(task_.graph.inline_names.begin(),
                                           task_.graph.inline_names.end(), slot.name) &&
                        !slot.consumer_op.empty() && is_invented_name(slot.name);
    return no_weight || scales || is_baked_buffer(slot.name, shape_or(*slot.shape, 0));
  }

  // True for a name of the state dict, as opposed to one that the exporter made up.
  [[nodiscard]] bool names_a_weight(const Slot& slot) const {
    if (states_origins_) {
      return slot.origin == SlotOrigin::kParameter || slot.origin == SlotOrigin::kBuffer;
    }
    return slot.folded_from.empty() && !is_invented_name(slot.name);
  }

  // Integers may have been computed from a permutation or a table of indices, unless an operator
  // reads them as a shape.
  [[nodiscard]] bool may_be_computed(const Slot& slot) const {
    const bool perhaps = may_be_submodule_ || (elements_of(slot) > 1 ? has_indices_ : has_number_);
    return perhaps && !states_origins_ && !is_shape_operand(slot);
  }

  // True if an operator reads the slot as a shape, axes or indices.
  [[nodiscard]] static bool is_shape_operand(const Slot& slot) {
    constexpr std::array<std::string_view, 18> kOperators = {
        "Reshape",    "Slice",     "Expand",    "Unsqueeze", "Squeeze",         "Tile",
        "Pad",        "Resize",    "Upsample",  "Split",     "ConstantOfShape", "TopK",
        "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd",      "Range"};
    return std::find(kOperators.begin(), kOperators.end(), slot.consumer_op) != kOperators.end();
  }

  // Whether a value that the optimizer folded may have been computed from a weight. Names that keys
  // have are weights; so may be others, because the checkpoint can lack a weight.
  [[nodiscard]] bool depends_on_weights(const Slot& slot) {
    return std::any_of(
        slot.folded_from.begin(), slot.folded_from.end(), [this](const std::string& name) {
          return sources_.may_be_weight(name) || (is_key(name) && !is_baked_buffer(name, {}));
        });
  }

  // Whether a value that had this name at export is a key.
  [[nodiscard]] bool is_key(const std::string& name) {
    if (keys_.empty()) {
      for (const KeyName& key : task_.key_names) {
        keys_.insert(key.name);
      }
    }
    std::string own = drop_wrappers(name);
    if (key_prefix_.kind == KeyPrefix::Kind::kAdd && own.starts_with(key_prefix_.prefix)) {
      own.erase(0, key_prefix_.prefix.size());
    }
    return keys_.contains(key_prefix_.kind == KeyPrefix::Kind::kRemove ? key_prefix_.prefix + own
                                                                       : own);
  }

  // True for a bound of a Clip that onnxscript's optimizer fused from Min and Max nodes. It calls
  // the bounds INPUT_min and INPUT_max, and does not state where they come from: they may be
  // parameters.
  static bool is_fused_bound(const Slot& slot) {
    return slot.consumer_op == "Clip" &&
           (slot.name.ends_with("_min") || slot.name.ends_with("_max"));
  }

  // True if a single number depends on no key. Requires: it has one element.
  [[nodiscard]] bool is_constant(const Slot& slot) const {
    return slot.folded_from.empty() && !slot.batch_norm_fused && !is_fused_bound(slot) &&
           (states_origins_ || (!has_number_ && !may_be_submodule_ && leftovers_.unused.empty()));
  }

  // True if the data equals that of a key, so that it is already right. If all elements are equal,
  // this proves little, unless the key has no other slot.
  Result<bool> equals_a_key(std::uint32_t i) {
    const auto alike = keys_of_size_.find(elements_of(task_.graph.slots[i]));
    if (alike == keys_of_size_.end()) {
      return false;
    }
    for (const std::uint32_t key : alike->second) {
      TRY_ASSIGN(auto holds, holds_key(i, key));
      if (!holds) {
        continue;
      }
      TRY_ASSIGN(auto uniform, evidence_.slot_is_uniform ? evidence_.slot_is_uniform(i) : true);
      const bool found_no_slot = !task_.key_used[key];
      if (found_no_slot) {
        account_for(key);
      }
      if (found_no_slot || !uniform) {
        return true;
      }
    }
    return false;
  }

  // Notes that the graph already holds the key's values.
  void account_for(std::uint32_t key) {
    for (auto* keys : {&leftovers_.unused, &leftovers_.unused_module_keys}) {
      const auto found = std::find(keys->begin(), keys->end(), key);
      if (found != keys->end()) {
        keys->erase(found);
        leftovers_.non_weights.push_back(key);
        leftovers_.baked.push_back(key);
      }
    }
  }

  // Whether the graph's data equals the key's, unchanged or transposed.
  [[nodiscard]] Result<bool> holds_key(std::uint32_t i, std::uint32_t key) const {
    const MappingKey& wanted = task_.keys.keys[key];
    if (!evidence_.slot_holds || onnx_data_type(wanted.dtype) != task_.graph.slots[i].elem_type) {
      return false;
    }
    auto plain = evidence_.slot_holds(i, key, {});
    if (!plain || *plain || wanted.shape.size() != 2) {
      return plain;
    }
    return evidence_.slot_holds(i, key, {RecipeStep::transpose()});
  }

  // Constant nodes are not slots, but one as large as a key without a slot may be that key.
  void list_constants() {
    std::set<std::uint64_t> sizes;
    for (const auto* keys : {&leftovers_.unused, &leftovers_.unused_module_keys}) {
      for (const std::uint32_t key : *keys) {
        sizes.insert(elements_of(task_.keys.keys[key].shape));
      }
    }
    const NameSet keep(task_.options.keep.begin(), task_.options.keep.end());
    for (const ConstantTensor& constant : task_.graph.constants) {
      if (sizes.contains(elements_of(constant.shape)) && !keep.contains(constant.name)) {
        leftovers_.constants.push_back(constant.name);
      }
    }
  }

  const MappingTask& task_;
  const KeyPrefix& key_prefix_;
  const MappingEvidence& evidence_;
  Leftovers& leftovers_;
  FoldedSources sources_;
  NameSet keys_;                                                      // as the rules see them
  std::map<std::uint64_t, std::vector<std::uint32_t>> keys_of_size_;  // by number of elements
  bool has_number_ = false;        // the checkpoint has a key of one element that is not a counter
  bool has_indices_ = false;       // the checkpoint has integers of more than one element
  bool may_be_submodule_ = false;  // the checkpoint may be that of a submodule
  bool states_origins_ = false;    // states_origins(graph)
  NameSet filled_names_;
};

}  // namespace

std::vector<std::uint32_t> Leftovers::without_slot() const {
  std::vector<std::uint32_t> keys;
  for (const auto* list : {&unused, &adapters, &unused_module_keys, &non_weights}) {
    keys.insert(keys.end(), list->begin(), list->end());
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

Status find_leftover_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                           const MappingEvidence& evidence, Leftovers& leftovers) {
  TRY(SlotSorter(task, key_prefix, evidence, leftovers).sort());
  sort_inputs(task, leftovers);
  return {};
}

}  // namespace onnx_external
