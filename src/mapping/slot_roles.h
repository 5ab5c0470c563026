// Decides from the exporter's metadata which slots may be filled by name, and under which name.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string_view>

#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

enum class SlotRole : std::uint8_t {
  kByName,    // the rules may fill it
  kCallers,   // a user input
  kKept,      // MappingOptions::keep: it keeps the graph's data
  kExplicit,  // only an explicit pair may fill it, because its name does not determine its value
  kFused,     // a BatchNorm was multiplied into it, so no key has its value
  kNone,      // not a weight: an output of the graph
};

// The role of a slot, and the name by which the rules look for its key.
struct SlotUse {
  SlotRole role = SlotRole::kByName;
  std::string_view name;  // the slot's name, or that of the weight that was folded into it
  bool transposed = false;
};

// True if the graph states the SlotOrigin of at least one weight, as with torch's newer exporter.
[[nodiscard]] bool states_origins(const GraphFacts& graph);

// Does not know the options: MappingTask applies --inputs and --keep later.
[[nodiscard]] SlotUse use_of(const Slot& slot, bool graph_states_origins);

// True if the slot cannot be a weight: an input with a symbolic dimension.
[[nodiscard]] bool has_symbolic_dimension(const Slot& slot);

// True for names that exporters invent for values without a name: "onnx::MatMul_8", "val_12",
// "/Add_output_0", "123". No state dict has such keys.
[[nodiscard]] bool is_invented_name(std::string_view name);

// True for tensors that an exporter computed: shapes, indexes, and single numbers without a name of
// torch. A matrix of floats without a name is a weight that was folded.
[[nodiscard]] bool is_computed(const onnx::TensorProto& tensor);

// True for names like "val_12", which torch's newer exporter and its optimizer invent.
[[nodiscard]] bool is_lifted_name(std::string_view name);

// Above this many elements, a transposed copy is recognized by its shape alone, because the
// optimizer applies no other operator to larger values (onnxscript's limit for folding).
inline constexpr std::int64_t kFoldLimit = 8192;

}  // namespace onnx_external
