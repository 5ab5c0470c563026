// Prepares the input of learn_map(): the tensors and slots of the graph and the keys (tensors of
// the old checkpoint) that it may pair, and the nodes that use the slots.
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
  // For each slot, the number of nodes that use it, without Identity nodes whose outputs are
  // themselves slots.
  std::vector<std::uint64_t> readers;
  NameMap<std::string_view>
      users;  // maps a value to the name of a node of the main graph that uses it

  std::vector<std::string_view> names;         // names of the old keys
  std::vector<bool> usable;                    // whether each old key may be used
  std::vector<bool> given;                     // whether MappingOptions::map names each old key
  OwnedNameMap<std::uint32_t> key_of_refined;  // by canonical_name()
  OwnedNameSet open_names;                     // canonical names of slots without data
  OwnedNameSet open_endings;                   // suffixes of these names

  // Returns the name of the only node that uses the slot, or "" if several nodes use it or the node
  // is in a subgraph.
  [[nodiscard]] std::string_view user_of(std::uint32_t slot) const;

  // Returns whether the exporter adds an Identity node for each weight that it merges with an equal
  // tensor.
  [[nodiscard]] bool has_identities(std::uint32_t slot) const;

  // Returns whether the name of the key matches a slot without data.
  [[nodiscard]] bool meets_open_slot(std::uint32_t key) const;

  [[nodiscard]] std::uint64_t elements_of(std::uint32_t graph_tensor) const;
  [[nodiscard]] std::uint64_t elements_of_key(std::uint32_t key) const;
};

// Prepares the task. Slots in options.map and options.keep, keys outside options.prefix, and keys
// that match options.ignore are left out. Fails with kInvalidArgument for a bad regular expression.
[[nodiscard]] Result<LearnTask> make_learn_task(const Model& model, const Checkpoint& old,
                                                const MappingOptions& options);

}  // namespace onnx_external
