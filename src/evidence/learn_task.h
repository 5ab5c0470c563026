// Prepares the input of learn_map(): which data and slots of the graph and which keys (tensors of
// the old checkpoint) take part, and which nodes use them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "evidence/graph_tensors.h"
#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct LearnTask {
  const Model& model;
  const GraphFacts& graph;
  const Checkpoint& old;

  std::vector<GraphTensor> graph_tensors;
  std::vector<std::optional<std::uint32_t>> tensor_of_slot;  // index into graph_tensors
  std::vector<bool> has_slot;                                // whether each graph tensor has a slot
  std::vector<bool> wanted;                                  // whether each graph tensor takes part
  std::vector<std::uint32_t> slots;                          // the slots that take part
  // For each slot, how many nodes use it, not counting Identity nodes whose outputs are slots
  // themselves.
  std::vector<std::uint64_t> readers;
  NameMap<std::string_view>
      users;  // value name -> the name of a node of the main graph that uses it

  std::vector<std::string_view> names;         // names of the old keys
  std::vector<bool> usable;                    // whether each old key may be used
  std::vector<bool> given;                     // whether MappingOptions::map names each old key
  OwnedNameMap<std::uint32_t> key_of_refined;  // by canonical_name()
  OwnedNameSet open_names;                     // canonical names of slots without data
  OwnedNameSet open_endings;                   // suffixes of these names

  // Returns the name of the only node that uses the slot; "" if several nodes use it, or if the
  // node is in a subgraph.
  [[nodiscard]] std::string_view user_of(std::uint32_t slot) const;

  // Returns whether the exporter gives each weight that it merges with an equal tensor an Identity
  // of its own.
  [[nodiscard]] bool has_identities(std::uint32_t slot) const;

  // Returns whether some slot without data has a name that the key matches.
  [[nodiscard]] bool meets_open_slot(std::uint32_t key) const;

  [[nodiscard]] std::uint64_t elements_of(std::uint32_t graph_tensor) const;
  [[nodiscard]] std::uint64_t elements_of_key(std::uint32_t key) const;
};

// The options exclude slots in map and keep, keys outside prefix, and keys that match ignore. Fails
// with kInvalidArgument for a bad regular expression.
[[nodiscard]] Result<LearnTask> make_learn_task(const Model& model, const Checkpoint& old,
                                                const MappingOptions& options);

}  // namespace onnx_external
