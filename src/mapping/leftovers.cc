// Decides the verdicts on slots that no key fills.
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
#include "mapping/name_refinement.h"
#include "mapping/user_inputs.h"
#include "mapping/verdict_lists.h"
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

class SlotJudge {
 public:
  SlotJudge(const MappingTask& task, const KeyPrefix& key_prefix, const MappingEvidence& evidence,
            Mapping& mapping)
      : task_(task),
        key_prefix_(key_prefix),
        evidence_(evidence),
        mapping_(mapping),
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
      unused_weights_ += mapping.keys[key].verdict == KeyVerdict::kUnused ? 1 : 0;
    }
  }

  Status judge() {
    mapping_.slots.assign(task_.graph.slots.size(), SlotVerdict::kFilled);
    mapping_.stale_constants.clear();
    for (std::uint32_t i = 0; i < task_.graph.slots.size(); ++i) {
      if (task_.fills[i]) {
        filled_names_.insert(task_.graph.slots[i].name);
      } else {
        TRY_ASSIGN(mapping_.slots[i], verdict_on(i));
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

  Result<SlotVerdict> verdict_on(std::uint32_t i) {
    const Slot& slot = task_.graph.slots[i];
    const SlotRole role = task_.slot_names[task_.name_of_slot[i]].role;
    switch (slot.kind) {
      case SlotKind::kGraphInput:
        break;  // judge_inputs() replaces it
      case SlotKind::kUndefinedName:
        return SlotVerdict::kMissing;
      case SlotKind::kIdentityOutput:
        // It has the value that it reads. If its name is that of a weight, this is another weight's
        // value.
        if (role != SlotRole::kNone && role != SlotRole::kKept && is_lost_weight(slot)) {
          return SlotVerdict::kMissing;
        }
        break;
      case SlotKind::kInitializer:
        return verdict_on_initializer(i, role);
    }
    return SlotVerdict::kNotNeeded;
  }

  [[nodiscard]] bool is_lost_weight(const Slot& slot) const {
    return filled_names_.contains(slot.merged_into) &&
           slot.name.find_first_of("/:") == std::string::npos;
  }

  Result<SlotVerdict> verdict_on_initializer(std::uint32_t i, SlotRole role) {
    const Slot& slot = task_.graph.slots[i];
    if (!slot.has_data) {
      return SlotVerdict::kMissing;
    }
    if (role == SlotRole::kKept || elements_of(slot) == 0 || is_exempt(slot)) {
      return SlotVerdict::kKept;
    }
    // Integers under a weight's name are also weights (a permutation, a table of indices), unless
    // the name is a path, which the exporter made up.
    const bool is_integer = !onnx_is_floating(slot.elem_type);
    const bool is_path = slot.name.find_first_of("/:") != std::string::npos;
    if (names_a_weight(slot) && !(is_integer && is_path)) {
      return SlotVerdict::kOld;
    }
    const bool folded = !slot.folded_from.empty();
    if (folded ? !depends_on_weights(slot) : is_integer && !may_be_computed(slot)) {
      return SlotVerdict::kKept;
    }
    TRY_ASSIGN(const auto proved, equals_a_key(i));
    const bool right = proved || (!is_integer && elements_of(slot) == 1 && is_constant(slot));
    return right ? SlotVerdict::kKept : SlotVerdict::kStale;
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

  // Returns whether a value that the optimizer folded may have been computed from a weight. Names
  // of keys are weights, and other names may be weights that the checkpoint lacks.
  [[nodiscard]] bool depends_on_weights(const Slot& slot) {
    return std::any_of(
        slot.folded_from.begin(), slot.folded_from.end(), [this](const std::string& name) {
          return sources_.may_be_weight(name) || (is_key(name) && !is_baked_buffer(name, {}));
        });
  }

  // Returns whether a value that had this name at export is a key.
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
           (states_origins_ || (!has_number_ && !may_be_submodule_ && unused_weights_ == 0));
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
    KeyVerdict& verdict = mapping_.keys[key].verdict;
    if (verdict == KeyVerdict::kUnused || verdict == KeyVerdict::kUnusedModule) {
      unused_weights_ -= verdict == KeyVerdict::kUnused ? 1 : 0;
      verdict = KeyVerdict::kBaked;
    }
  }

  // Returns whether the graph's data equals the key's, unchanged or transposed.
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
    for (const std::uint32_t key :
         mapping_.keys_with({KeyVerdict::kUnused, KeyVerdict::kUnusedModule})) {
      sizes.insert(elements_of(task_.keys.keys[key].shape));
    }
    const NameSet keep(task_.options.keep.begin(), task_.options.keep.end());
    for (const ConstantTensor& constant : task_.graph.constants) {
      if (sizes.contains(elements_of(constant.shape)) && !keep.contains(constant.name)) {
        mapping_.stale_constants.push_back(constant.name);
      }
    }
  }

  const MappingTask& task_;
  const KeyPrefix& key_prefix_;
  const MappingEvidence& evidence_;
  Mapping& mapping_;
  FoldedSources sources_;
  NameSet keys_;                                                      // as the rules see them
  std::map<std::uint64_t, std::vector<std::uint32_t>> keys_of_size_;  // by number of elements
  std::size_t unused_weights_ = 0;
  bool has_number_ = false;        // the checkpoint has a key of one element that is not a counter
  bool has_indices_ = false;       // the checkpoint has integers of more than one element
  bool may_be_submodule_ = false;  // the checkpoint may be that of a submodule
  bool states_origins_ = false;    // states_origins(graph)
  NameSet filled_names_;
};

}  // namespace

Status judge_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                   const MappingEvidence& evidence, Mapping& mapping) {
  TRY(SlotJudge(task, key_prefix, evidence, mapping).judge());
  judge_inputs(task, mapping);
  return {};
}

std::vector<std::uint32_t> slots_without_key(const MappingTask& task, const Mapping& mapping) {
  std::vector<std::uint32_t> found = mapping.slots_with({SlotVerdict::kMissing, SlotVerdict::kOld});
  std::sort(found.begin(), found.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto order = [&](std::uint32_t slot) {
      return std::pair(task.graph.slots[slot].kind == SlotKind::kGraphInput, slot);
    };
    return order(a) < order(b);
  });
  return found;
}

std::vector<std::uint32_t> Mapping::keys_with(std::initializer_list<KeyVerdict> verdicts) const {
  return places_with(verdicts, keys.size(), [&](std::uint32_t key) { return keys[key].verdict; });
}

std::vector<std::uint32_t> Mapping::slots_with(std::initializer_list<SlotVerdict> verdicts) const {
  return places_with(verdicts, slots.size(), [&](std::uint32_t slot) { return slots[slot]; });
}

std::vector<LeftName> left_names(const GraphFacts& graph, const Mapping& mapping) {
  std::vector<LeftName> names;
  auto other = mapping.other_inputs.begin();
  const auto add_others_before = [&](std::uint32_t input) {
    for (; other != mapping.other_inputs.end() && *other < input; ++other) {
      names.push_back({graph.graph_inputs[*other], SlotVerdict::kUserInput});
    }
  };
  for (std::uint32_t i = 0; i < mapping.slots.size(); ++i) {
    const Slot& slot = graph.slots[i];
    if (slot.kind == SlotKind::kGraphInput) {
      add_others_before(slot.input_index);
    }
    const SlotVerdict verdict = mapping.slots[i];
    if (verdict != SlotVerdict::kFilled && verdict != SlotVerdict::kDoubtful &&
        verdict != SlotVerdict::kNotNeeded) {
      names.push_back({slot.name, verdict});
    }
  }
  add_others_before(static_cast<std::uint32_t>(graph.graph_inputs.size()));
  for (const std::string& constant : mapping.stale_constants) {
    names.push_back({constant, SlotVerdict::kStaleConstant});
  }
  return names;
}

}  // namespace onnx_external
