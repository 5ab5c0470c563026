// What is left over once the rules have run, and which inputs of the graph belong to the caller.
#include <algorithm>
#include <unordered_map>

#include "base/name_map.h"
#include "mapping/name_refinement.h"
#include "mapping/refusals.h"

namespace onnx_external {
namespace {

enum class InputState : std::uint8_t {
  kFilled,    // by a key, or by an initializer that it has
  kNamed,     // in --inputs
  kNoWeight,  // has a symbolic dimension, or is no tensor
  kOpen,      // could have been a weight
};

// Decides which inputs without data are the caller's.
class InputSorter {
 public:
  explicit InputSorter(const MappingTask& task) : task_(task) {
    slots_.resize(task.graph.graph_inputs.size());
    for (std::uint32_t i = 0; i < task.graph.slots.size(); ++i) {
      const Slot& slot = task.graph.slots[i];
      if (slot.kind == SlotKind::kGraphInput && slot.input_index < slots_.size()) {
        slots_[slot.input_index] = i;
      } else if (slot.kind == SlotKind::kInitializer && slot.graph == 0) {
        initializers_.insert(slot.name);
      }
    }
    for (const Slot& slot : task.graph.slots) {
      const std::size_t index = static_cast<std::size_t>(&slot - task.graph.slots.data());
      if (slot.kind == SlotKind::kIdentityOutput && task.fills[index]) {
        merged_weights_.insert(slot.merged_into);
      }
    }
    const NameSet named(task.options.inputs.begin(), task.options.inputs.end());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      states_.push_back(named.contains(task.graph.graph_inputs[i]) ? InputState::kNamed
                                                                   : state_of(i));
    }
  }

  void sort(Leftovers& leftovers) const {
    const auto [first, last] = callers_run();
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::string& input = task_.graph.graph_inputs[i];
      if (states_[i] == InputState::kFilled) {
        continue;
      }
      const bool callers =
          states_[i] != InputState::kOpen || (i >= first && i < last && !looks_like_weight(input));
      if (callers) {
        leftovers.inputs_left.push_back(input);
      } else {
        leftovers.missing_slots.push_back(*slots_[i]);
      }
    }
  }

 private:
  [[nodiscard]] InputState state_of(std::size_t input) const {
    if (!slots_[input]) {  // else it is a sequence, an optional, a map
      return initializers_.contains(task_.graph.graph_inputs[input]) ? InputState::kFilled
                                                                     : InputState::kNoWeight;
    }
    const Slot& slot = task_.graph.slots[*slots_[input]];
    if (task_.fills[*slots_[input]]) {
      return InputState::kFilled;
    }
    return has_symbolic_dimension(slot) ? InputState::kNoWeight : InputState::kOpen;
  }

  // The run of left-over inputs at the start or the end that the caller may own: all of them stand
  // in it, or else only those at the start (or, with none there, at the end) are the caller's. A
  // list in --inputs is complete: then there is no run.
  [[nodiscard]] std::pair<std::size_t, std::size_t> callers_run() const {
    if (!task_.options.inputs.empty()) {
      return {0, 0};
    }
    const auto filled = [](InputState state) { return state == InputState::kFilled; };
    const auto start_end = std::find_if(states_.begin(), states_.end(), filled);
    const auto end_start = std::find_if(states_.rbegin(), states_.rend(), filled).base();
    const auto start = static_cast<std::size_t>(start_end - states_.begin());
    const auto end = static_cast<std::size_t>(end_start - states_.begin());
    return start > 0 ? std::pair(std::size_t{0}, start) : std::pair(end, states_.size());
  }

  [[nodiscard]] bool looks_like_weight(const std::string& input) const {
    return is_parameter_name(input) || merged_weights_.contains(input);
  }

  const MappingTask& task_;
  std::vector<std::optional<std::uint32_t>> slots_;  // of the graph's inputs
  NameSet initializers_;                             // of the main graph
  NameSet merged_weights_;                           // what filled Identity slots read
  std::vector<InputState> states_;
};

void sort_keys(const MappingTask& task, Leftovers& leftovers) {
  if (std::find(task.key_used.begin(), task.key_used.end(), false) == task.key_used.end()) {
    return;
  }
  std::unordered_map<std::uint64_t, std::uint32_t> used_bytes;
  const std::vector<MappingKey>& keys = task.keys.keys;
  for (std::uint32_t key = 0; key < keys.size(); ++key) {
    if (task.key_used[key] && keys[key].bytes_id) {
      used_bytes.emplace(*keys[key].bytes_id, key);
    }
  }
  for (std::uint32_t key = 0; key < keys.size(); ++key) {
    if (task.key_used[key]) {
      continue;
    }
    const auto tied = keys[key].bytes_id ? used_bytes.find(*keys[key].bytes_id) : used_bytes.end();
    if (tied != used_bytes.end()) {
      leftovers.tied.push_back({key, tied->second});
    } else if (task.key_names[key].usable) {
      leftovers.keys.push_back(key);
    } else {
      leftovers.other_keys.push_back(key);
    }
  }
}

// An Identity that stays keeps two weights equal. That is what the exporter meant, unless the name
// is one that the checkpoint should have.
bool lost_weight(const MappingTask& task, const Slot& slot, const NameSet& filled) {
  return slot.kind == SlotKind::kIdentityOutput && is_parameter_name(slot.name) &&
         filled.contains(slot.merged_into) && task.options.match == Match::kAuto;
}

}  // namespace

Leftovers find_leftovers(const MappingTask& task) {
  Leftovers leftovers;
  sort_keys(task, leftovers);
  InputSorter(task).sort(leftovers);
  const bool merges =
      std::any_of(task.graph.slots.begin(), task.graph.slots.end(),
                  [](const Slot& slot) { return slot.kind == SlotKind::kIdentityOutput; });
  NameSet filled;  // as far as an Identity may ask
  for (std::uint32_t i = 0; i < task.graph.slots.size(); ++i) {
    const Slot& slot = task.graph.slots[i];
    if (task.fills[i]) {
      if (merges) {
        filled.insert(slot.name);
      }
    } else if (slot.kind == SlotKind::kUndefinedName ||
               (slot.kind == SlotKind::kInitializer && !slot.has_data) ||
               lost_weight(task, slot, filled)) {
      leftovers.missing_slots.push_back(i);
    } else if (slot.kind == SlotKind::kInitializer) {
      leftovers.kept_slots.push_back(i);
    }
  }
  return leftovers;
}

}  // namespace onnx_external
