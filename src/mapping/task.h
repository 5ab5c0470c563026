// What the rules work on: names prepared once, and which slot has got which key so far. A task has
// as many names as the model has weights, so it copies only those that differ from the given ones.
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
#include "onnx_external/mapping.h"

namespace onnx_external {

struct KeyName {
  std::string_view name;     // renamed, wrappers dropped, --prefix removed
  std::string_view refined;  // of `name`
  bool usable = true;        // false: not under --prefix
};

// What several slots of one name ask of a key together: a file can give one name to thousands of
// slots, and meet it with thousands of keys.
struct SharedForm {
  bool possible = true;                  // false: no key can be what all of them are
  std::vector<std::int32_t> elem_types;  // those stated
  std::optional<SymbolicShape> shape;
  std::optional<SymbolicShape> bound;
};

// Slots of one name: one, or several in different subgraphs (the branches of an If). They are
// filled together.
struct SlotName {
  std::string_view name;  // wrappers dropped; of a folded weight, that weight's
  std::string_view refined;
  std::span<const std::uint32_t> slots;
  const SharedForm* form = nullptr;  // of several slots
  SlotRole role = SlotRole::kByName;
  bool transposed = false;  // a folded weight: a key is transposed to fill it
  bool open = true;         // false: names do not fill it, or it is filled
};

// A folded copy of a weight that has a slot of its own name as well: it gets the same key.
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
  std::vector<std::uint32_t> slots_of_names;  // SlotName::slots of all
  std::deque<SharedForm> shared_forms;        // SlotName::form of all
  std::deque<std::string> changed_names;      // where names are views of no given one
  NamePlaces key_by_name;                     // -> keys.keys, by the checkpoint's spelling
  NamePlaces slot_by_name;  // -> graph.slots, by the graph's spelling; the first of it
  std::vector<std::uint32_t> name_of_slot;  // of each slot: index into slot_names
  std::vector<FoldedCopy> folded_copies;    // by rising weight
  std::string option_alignment;             // "-P" of --prefix P

  std::vector<std::optional<Fill>> fills;  // same index as graph.slots
  std::vector<bool> key_used;              // same index as keys.keys

  [[nodiscard]] const Slot& first_slot(std::uint32_t slot_name) const {
    return graph.slots[slot_names[slot_name].slots.front()];
  }
  // Index into slot_names, by the graph's spelling.
  [[nodiscard]] std::optional<std::uint32_t> slot_name_called(std::string_view name) const {
    const auto slot = slot_by_name.find(name);
    return slot ? std::optional(name_of_slot[*slot]) : std::nullopt;
  }
  // What a key goes through to fill the slot by name.
  [[nodiscard]] Recipe recipe_of(std::uint32_t slot_name) const {
    return slot_names[slot_name].transposed ? Recipe{RecipeStep::kTranspose} : Recipe{};
  }

  // Fills the slots of the name with what the recipe makes of the key, and the open copies of them.
  // Slots that are kept stay as they are; the key counts as used all the same.
  void fill(std::uint32_t slot_name, std::uint32_t key, Rule rule, const Recipe& recipe);
  void fill_by_name(std::uint32_t slot_name, std::uint32_t key, Rule rule) {
    fill(slot_name, key, rule, recipe_of(slot_name));
  }
};

// Names as --rename and --prefix make them; rule 6 closes the slots that belong to the caller.
[[nodiscard]] Result<MappingTask> make_task(const GraphFacts& graph, const MappingKeys& keys,
                                            const MappingOptions& options);

// False when a type or dimension that both state differs, unless the values can be converted and
// the options allow it. `recipe`: what is done to the key first; by default recipe_of(slot_name).
[[nodiscard]] bool agrees(const MappingTask& task, const Slot& slot, const MappingKey& key,
                          const Recipe& recipe);
[[nodiscard]] bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key,
                          const Recipe& recipe);
[[nodiscard]] bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key);

// True for a pair that does not agree, but would with Casts::kAllow.
[[nodiscard]] bool agrees_once_cast(const MappingTask& task, std::uint32_t slot_name,
                                    std::uint32_t key);

// "slot 'a' is FLOAT [2], but key 'b' is FLOAT [3]": of slots that share a name, the one that
// disagrees.
[[nodiscard]] std::string clash_text(const MappingTask& task, std::uint32_t slot_name,
                                     std::uint32_t key, const Recipe& recipe);

// "FLOAT [64, 3, 7, 7]", "FLOAT [?, 4]", "shape unknown" ...
[[nodiscard]] std::string form_of(const Slot& slot);
[[nodiscard]] std::string form_of(const MappingKey& key);

}  // namespace onnx_external
