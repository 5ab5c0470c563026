// Defines the state of a mapping: the prepared names of keys (tensors of a checkpoint) and slots
// (values of a graph), and the slots that the rules have filled so far. Because a task has as many
// names as the model has weights, it copies only names that preparation changes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "mapping/slot_roles.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

struct KeyName {
  std::string_view name;     // after --rename, without wrappers and --prefix
  std::string_view refined;  // refined form of `name`
  bool usable = true;        // false if it is not under --prefix
};

// The combined requirements of several slots with the same name. They are computed once, because a
// file can have thousands of slots and thousands of keys with the same name.
struct SharedType {
  bool possible = true;                  // false if no key can satisfy all requirements
  std::vector<std::int32_t> elem_types;  // the types that are stated
  std::optional<SymbolicShape> shape;
  std::optional<SymbolicShape> broadcast_limit;
};

// All slots with the same name. There is one slot, or there are several in different subgraphs (the
// branches of an If). All of them are filled together.
struct SlotName {
  std::string_view name;  // name without wrappers; for a folded copy, that of its weight
  std::string_view refined;
  std::span<const std::uint32_t> slots;
  const SharedType* type = nullptr;  // only for several slots
  SlotRole role = SlotRole::kByName;
  bool transposed = false;  // a folded weight, filled by a transposed key
  bool open = true;         // false if it is filled or cannot be filled by name
};

// A folded copy of a weight that also has its own slot. Both slots get the same key.
struct FoldedCopy {
  std::uint32_t weight = 0;  // index into MappingTask::slot_names
  std::uint32_t copy = 0;
};

struct Fill {
  std::uint32_t key = 0;
  Rule rule = Rule::kExact;
  Recipe recipe = {};
};

struct MappingTask {
  const GraphFacts& graph;
  const MappingKeys& keys;
  const MappingOptions& options;

  std::vector<KeyName> key_names;  // same index as keys.keys
  std::vector<SlotName> slot_names;
  std::vector<std::uint32_t> slots_of_names;  // storage of all SlotName::slots
  std::deque<SharedType> shared_types;        // storage of all SlotName::type
  std::deque<std::string> changed_names;      // prepared names that had to be changed
  NameIndexSet key_by_name;                   // indices into keys.keys, by original name
  NameIndexSet slot_by_name;  // indices into graph.slots, by original name; the first slot
  std::vector<std::uint32_t> name_of_slot;  // for each slot, an index into slot_names
  std::vector<FoldedCopy> folded_copies;    // by ascending weight
  std::string option_alignment;             // "-P" for --prefix P
  std::string_view own_name;                // with several graphs: "encoder" for "encoder.onnx"

  std::vector<std::optional<Fill>> fills;  // same index as graph.slots
  std::vector<bool> key_used;              // same index as keys.keys

  // Returns whether --prefix is empty, in which case no prefix and no suffix is tried.
  [[nodiscard]] bool keys_have_own_names() const {
    return options.prefix && options.prefix->empty();
  }
  [[nodiscard]] const Slot& first_slot(std::uint32_t slot_name) const {
    return graph.slots[slot_names[slot_name].slots.front()];
  }
  // Returns the index in slot_names for a name in the graph.
  [[nodiscard]] std::optional<std::uint32_t> slot_name_called(std::string_view name) const {
    const auto slot = slot_by_name.find(name);
    return slot ? std::optional(name_of_slot[*slot]) : std::nullopt;
  }
  // Returns the recipe for a key that fills the slot by name.
  [[nodiscard]] Recipe recipe_of(std::uint32_t slot_name) const {
    return slot_names[slot_name].transposed ? Recipe{RecipeStep::transpose()} : Recipe{};
  }

  // Marks the key as used, and, for a derived key, the keys that it is computed from.
  void use(std::uint32_t key);

  // Fills the slots of this name, and their open folded copies, with the result of the recipe.
  // Slots that --keep names are not changed, but the key still counts as used.
  void fill(std::uint32_t slot_name, std::uint32_t key, Rule rule, const Recipe& recipe);
  void fill_by_name(std::uint32_t slot_name, std::uint32_t key, Rule rule) {
    fill(slot_name, key, rule, recipe_of(slot_name));
  }
};

// Creates a task with names prepared according to --rename and --prefix. Inputs of the caller are
// not open slots.
[[nodiscard]] Result<MappingTask> make_task(const GraphFacts& graph, const MappingKeys& keys,
                                            const MappingOptions& options);

// Returns whether the types and dimensions of a slot and a key agree, after `recipe` is applied to
// the key. Different types also agree if the values can be converted and the options allow it. The
// default for `recipe` is recipe_of(slot_name).
[[nodiscard]] bool agrees(const MappingTask& task, const Slot& slot, const MappingKey& key,
                          const Recipe& recipe);
[[nodiscard]] bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key,
                          const Recipe& recipe);
[[nodiscard]] bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key);

// Returns whether the pair would agree only with Casts::kAllow.
[[nodiscard]] bool agrees_once_cast(const MappingTask& task, std::uint32_t slot_name,
                                    std::uint32_t key);

// Returns a text such as "slot 'a' is FLOAT [2], but key 'b' is FLOAT [3]". If several slots have
// the name, the text states a slot that does not agree with the key.
[[nodiscard]] std::string clash_text(const MappingTask& task, std::uint32_t slot_name,
                                     std::uint32_t key, const Recipe& recipe);

// Returns the shape, with `unknown` for dimensions that are not stated.
[[nodiscard]] Shape shape_or(const SymbolicShape& shape, std::int64_t unknown);

// Return type and shape as text: "FLOAT [64, 3, 7, 7]", "FLOAT [?, 4]", "shape unknown", ...
[[nodiscard]] std::string form_of(const Slot& slot);
[[nodiscard]] std::string form_of(const MappingKey& key);

}  // namespace onnx_external
