// What is left over once the rules have run, and which inputs of the graph belong to the caller.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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
    for (std::uint32_t i = 0; i < task.graph.slots.size(); ++i) {
      if (task.graph.slots[i].graph == 0) {
        slots_.emplace(task.graph.slots[i].name, i);
      }
    }
    for (const Slot& slot : task.graph.slots) {
      const std::size_t index = static_cast<std::size_t>(&slot - task.graph.slots.data());
      if (slot.kind == SlotKind::kIdentityOutput && task.fills[index]) {
        merged_weights_.insert(slot.merged_into);
      }
    }
    const std::unordered_set<std::string_view> named(task.options.inputs.begin(),
                                                     task.options.inputs.end());
    for (const std::string& input : task.graph.graph_inputs) {
      states_.push_back(named.contains(input) ? InputState::kNamed : state_of(input));
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
        leftovers.missing_slots.push_back(slots_.at(input));
      }
    }
  }

 private:
  [[nodiscard]] InputState state_of(const std::string& input) const {
    const auto found = slots_.find(input);
    if (found == slots_.end()) {
      return InputState::kNoWeight;  // a sequence, an optional, a map
    }
    const Slot& slot = task_.graph.slots[found->second];
    if (slot.kind != SlotKind::kGraphInput || task_.fills[found->second]) {
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
  std::unordered_map<std::string_view, std::uint32_t> slots_;  // of the main graph
  std::unordered_set<std::string_view> merged_weights_;        // what filled Identity slots read
  std::vector<InputState> states_;
};

void sort_keys(const MappingTask& task, Leftovers& leftovers) {
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
bool lost_weight(const MappingTask& task, const Slot& slot,
                 const std::unordered_set<std::string_view>& filled) {
  return slot.kind == SlotKind::kIdentityOutput && is_parameter_name(slot.name) &&
         filled.contains(slot.merged_into) && task.options.match == Match::kAuto;
}

}  // namespace

Leftovers find_leftovers(const MappingTask& task) {
  Leftovers leftovers;
  sort_keys(task, leftovers);
  InputSorter(task).sort(leftovers);
  std::unordered_set<std::string_view> filled;
  for (std::uint32_t i = 0; i < task.graph.slots.size(); ++i) {
    const Slot& slot = task.graph.slots[i];
    if (task.fills[i]) {
      filled.insert(slot.name);
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
