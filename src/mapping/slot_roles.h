// Decides, from the exporter's metadata, whether a key (a tensor of a checkpoint) may fill a slot
// (a value of a graph) by name, and determines that name.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string_view>

#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

enum class SlotRole : std::uint8_t {
  kByName,    // the rules may fill the slot by name
  kCallers,   // an input of the caller
  kKept,      // it keeps the graph's data, because MappingOptions::keep names it
  kExplicit,  // only an explicit pair may fill it, because its name does not determine its value
  kFused,     // a BatchNorm was multiplied into it, so no key has its value
  kNone,      // not a weight: an output of the graph
};

// The role of a slot, and the name that the rules match with names of keys.
struct SlotUse {
  SlotRole role = SlotRole::kByName;
  std::string_view name;  // the slot's name, or the name of the weight that was folded into it
  bool transposed = false;
};

// Returns whether the graph states the SlotOrigin of at least one weight, as torch's newer exporter
// does.
[[nodiscard]] bool states_origins(const GraphFacts& graph);

// Returns the use of a slot. --inputs and --keep are not considered here, but later (task.h).
[[nodiscard]] SlotUse use_of(const Slot& slot, bool graph_states_origins);

// Returns whether the slot is an input with a symbolic dimension. Such an input cannot be a weight.
[[nodiscard]] bool has_symbolic_dimension(const Slot& slot);

// Returns whether the name is generated, as exporters do for values without a name:
// "onnx::MatMul_8", "val_12", "/Add_output_0", "123". No state dict has such a key.
[[nodiscard]] bool is_invented_name(std::string_view name);

// Returns whether an exporter computed the tensor. Such tensors are shapes, indices, and scalars
// that have no name in torch. A matrix of floats without a name does not count, because it is a
// folded weight.
[[nodiscard]] bool is_computed(const onnx::TensorProto& tensor);

// Returns whether the name has the form "val_12", which torch's newer exporter and its optimizer
// generate.
[[nodiscard]] bool is_lifted_name(std::string_view name);

// A value with more elements than this is recognized as a transposed copy by its shape alone,
// because the optimizer applies no other operator to larger values (onnxscript's limit for
// folding).
inline constexpr std::int64_t kFoldLimit = 8192;

}  // namespace onnx_external
