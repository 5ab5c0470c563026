#include "mapping/user_inputs.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/name_map.h"
#include "mapping/name_refinement.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

enum class InputState : std::uint8_t {
  kFilled,   // by a key, or by an initializer of the same name
  kCallers,  // certainly the caller's
  kOpen,     // the caller's or a weight
};

// The names of a module's attributes have dots; those of a function's arguments do not.
bool is_weight_name(std::string_view name) {
  return !is_made_up(name) && (name.find('.') != std::string_view::npos || is_parameter_name(name));
}

class InputJudge {
 public:
  InputJudge(const MappingTask& task, Mapping& mapping) : task_(task), mapping_(mapping) {
    inputs_.insert(task.graph.graph_inputs.begin(), task.graph.graph_inputs.end());
    slots_.resize(task.graph.graph_inputs.size());
    NameSet initializers;
    for (std::uint32_t i = 0; i < task.graph.slots.size(); ++i) {
      const Slot& slot = task.graph.slots[i];
      if (slot.kind == SlotKind::kGraphInput && slot.input_index < slots_.size()) {
        slots_[slot.input_index] = i;
      } else if (slot.kind == SlotKind::kInitializer && slot.graph == 0) {
        initializers.insert(slot.name);
      } else if (slot.kind == SlotKind::kIdentityOutput && task.fills[i]) {
        merged_weights_.insert(slot.merged_into);
      }
      holds_weights_ = holds_weights_ || is_weight_elsewhere(slot);
      has_larger_input_ = has_larger_input_ || is_larger_input(i);
      marks_callers_ = marks_callers_ || slot.origin == SlotOrigin::kUserInput;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      states_.push_back(state_of(i, initializers));
    }
    reopen_integers();
    find_borders();
    list_left_forms();
  }

  void judge() {
    mapping_.other_inputs.clear();
    const auto left = static_cast<std::size_t>(
        std::count_if(states_.begin(), states_.end(),
                      [](InputState state) { return state != InputState::kFilled; }));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (!slots_[i]) {
        if (states_[i] == InputState::kCallers) {
          mapping_.other_inputs.push_back(static_cast<std::uint32_t>(i));
        }
      } else if (states_[i] == InputState::kCallers) {
        verdict_on(i) = SlotVerdict::kUserInput;
      } else if (states_[i] == InputState::kOpen) {
        verdict_on(i) = verdict_on_open(i, left == 1);
      } else if (is_suspect(i)) {
        verdict_on(i) = SlotVerdict::kDoubtful;
      }
    }
  }

 private:
  // Requires: the input is a slot.
  SlotVerdict& verdict_on(std::size_t input) { return mapping_.slots[*slots_[input]]; }

  // True for a weight that is not an input. Exporters make either all weights inputs, or none.
  [[nodiscard]] static bool is_weight_elsewhere(const Slot& slot) {
    return slot.kind == SlotKind::kUndefinedName ||
           (slot.kind == SlotKind::kInitializer && slot.has_data &&
            onnx_is_floating(slot.elem_type) && !is_invented_name(slot.name));
  }

  [[nodiscard]] bool is_larger_input(std::uint32_t i) const {
    const Slot& slot = task_.graph.slots[i];
    return slot.kind == SlotKind::kGraphInput && !task_.fills[i] &&
           (has_symbolic_dimension(slot) || (slot.shape && slot.shape->size() > 1));
  }

  [[nodiscard]] InputState state_of(std::size_t input, const NameSet& initializers) const {
    const std::string& name = task_.graph.graph_inputs[input];
    if (!slots_[input]) {  // not a tensor, but a sequence, an optional or a map
      return initializers.contains(name) ? InputState::kFilled : InputState::kCallers;
    }
    const std::uint32_t slot = *slots_[input];
    if (task_.fills[slot]) {
      return InputState::kFilled;
    }
    const std::vector<std::string>& named = task_.options.inputs;
    if (task_.slot_names[task_.name_of_slot[slot]].role == SlotRole::kCallers) {
      return InputState::kCallers;
    }
    // --inputs lists all inputs of the caller, so any other input is a weight.
    const bool certain = named.empty() && is_integer(slot) && !is_weight_name(name) &&
                         !was_renamed(name) && (is_made_up(name) || !may_be_buffer(slot));
    return certain ? InputState::kCallers : InputState::kOpen;
  }

  // Integers of one fixed dimension, beside inputs with more or symbolic dimensions, may be a
  // permutation.
  [[nodiscard]] bool may_be_buffer(std::uint32_t slot) const {
    const auto& shape = task_.graph.slots[slot].shape;
    return shape && shape->size() <= 1 && has_larger_input_;
  }

  // Exporters put the caller's inputs first, so integers after weights may be a buffer.
  void reopen_integers() {
    bool behind = false;
    for (std::size_t i = 0; i < states_.size() && !holds_weights_; ++i) {
      behind = behind || is_filled_slot(i);
      if (behind && states_[i] == InputState::kCallers && slots_[i] && is_integer(*slots_[i]) &&
          task_.slot_names[task_.name_of_slot[*slots_[i]]].role != SlotRole::kCallers) {
        states_[i] = InputState::kOpen;
      }
    }
  }

  [[nodiscard]] bool is_filled_slot(std::size_t input) const {
    return states_[input] == InputState::kFilled && slots_[input].has_value();
  }

  [[nodiscard]] bool is_integer(std::uint32_t slot) const {
    const std::int32_t type = task_.graph.slots[slot].elem_type;
    return type != 0 && !onnx_is_floating(type);
  }

  void list_left_forms() {
    for (const std::uint32_t key :
         mapping_.keys_with({KeyVerdict::kUnused, KeyVerdict::kUnusedModule})) {
      left_shapes_.insert(task_.keys.keys[key].shape);
    }
  }

  // True if a left-over key has the shape of this input, whatever its float type.
  [[nodiscard]] bool fits_left_key(std::uint32_t slot) const {
    const auto& shape = task_.graph.slots[slot].shape;
    if (!shape) {
      return !left_shapes_.empty();
    }
    return left_shapes_.contains(shape_or(*shape, -1));
  }

  SlotVerdict verdict_on_open(std::size_t input, bool is_only_one) {
    const std::string& name = task_.graph.graph_inputs[input];
    const std::uint32_t slot = *slots_[input];
    const bool is_weight = marks_callers_ || is_weight_name(name) ||
                           merged_weights_.contains(name) || was_renamed(name) ||
                           (is_made_up(name) && !holds_weights_ && input > first_filled_);
    if (!task_.options.inputs.empty() || is_weight) {
      return SlotVerdict::kMissing;
    }
    return (holds_weights_ || is_only_one) && !fits_left_key(slot) ? SlotVerdict::kUserInput
                                                                   : SlotVerdict::kUnconfirmed;
  }

  // Returns true for "mask.1" if there is an input "mask", because torch renames attributes but not
  // arguments.
  [[nodiscard]] bool was_renamed(std::string_view name) const {
    const auto base = name_before_number(name);
    return base && inputs_.contains(*base);
  }

  // Returns true for a filled input that may still be a user input. Exporters put user inputs
  // first, so a name without dots certainly belongs to a weight only after another weight, or if
  // its type is float.
  [[nodiscard]] bool is_suspect(std::size_t input) const {
    const auto slot = slots_[input];
    if (!slot || !task_.options.inputs.empty() || is_weight_name(task_.graph.graph_inputs[input])) {
      return false;
    }
    const Rule rule = task_.fills[*slot]->rule;
    if (rule == Rule::kMap || task_.graph.slots[*slot].origin != SlotOrigin::kUnstated) {
      return false;
    }
    return holds_weights_ || input < end_of_callers_ || (is_integer(*slot) && input < first_float_);
  }

  // Finds the first weights, and the last input that is certainly a user input.
  void find_borders() {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (is_filled_slot(i)) {
        first_filled_ = std::min(first_filled_, i);
        first_float_ = is_integer(*slots_[i]) ? first_float_ : std::min(first_float_, i);
      } else if (states_[i] == InputState::kCallers) {
        end_of_callers_ = i + 1;
      }
    }
  }

  const MappingTask& task_;
  Mapping& mapping_;
  std::vector<std::optional<std::uint32_t>> slots_;  // the slot of each input of the graph
  NameSet inputs_;                                   // names of the graph's inputs
  NameSet merged_weights_;                           // names that filled Identity slots read
  bool holds_weights_ = false;
  bool has_larger_input_ = false;  // an unfilled input has several or symbolic dimensions
  bool marks_callers_ = false;     // the exporter marks all inputs of the caller
  std::vector<InputState> states_;
  std::size_t first_filled_ = std::numeric_limits<std::size_t>::max();
  std::size_t first_float_ = std::numeric_limits<std::size_t>::max();  // the first filled float
  std::size_t end_of_callers_ = 0;
  std::set<Shape> left_shapes_;
};

}  // namespace

bool is_made_up(std::string_view name) {
  return is_invented_name(name) || name_before_number(name);
}

void judge_inputs(const MappingTask& task, Mapping& mapping) {
  InputJudge(task, mapping).judge();
}

}  // namespace onnx_external
