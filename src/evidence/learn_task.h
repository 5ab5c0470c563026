// What learn_map() works on: which data, slots and keys take part, and who uses what.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "evidence/held_tensors.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct LearnTask {
  const Model& model;
  const GraphFacts& graph;
  const Checkpoint& old;

  std::vector<HeldTensor> held;
  std::vector<std::optional<std::uint32_t>> held_of_slot;  // index into held
  std::vector<bool> has_slot;                              // of held
  std::vector<bool> wanted;                                // of held: which are looked at
  std::vector<std::uint32_t> slots;                        // those that are looked at
  // Of all slots: how many nodes use them, without the Identity nodes that are slots themselves.
  std::vector<std::uint64_t> readers;
  NameMap<std::string_view> users;  // of values: a node of the main graph, by its name

  std::vector<std::string_view> names;         // of the old keys
  std::vector<bool> usable;                    // of the old keys
  std::vector<bool> given;                     // of the old keys: named in map or ties
  OwnedNameMap<std::uint32_t> key_of_refined;  // by canonical_name()
  OwnedNameSet open_names;                     // of slots without data, canonical
  OwnedNameSet open_endings;                   // the ends of these names, too

  // The only node that uses the slot; "" where there are others, or it is in a subgraph.
  [[nodiscard]] std::string_view user_of(std::uint32_t slot) const;

  // Whether the exporter gives a weight that it merged with an equal tensor an Identity of its own.
  [[nodiscard]] bool has_identities(std::uint32_t slot) const;

  // Whether the key fills a slot without data by its name.
  [[nodiscard]] bool meets_open_slot(std::uint32_t key) const;

  [[nodiscard]] std::uint64_t elements_of(std::uint32_t held_tensor) const;
  [[nodiscard]] std::uint64_t elements_of_key(std::uint32_t key) const;
};

// The options say what is left alone: slots and keys of map and ties, slots in keep, keys outside
// prefix or under ignore. kInvalidArgument for a bad expression.
[[nodiscard]] Result<LearnTask> make_learn_task(const Model& model, const Checkpoint& old,
                                                const MappingOptions& options);

}  // namespace onnx_external
