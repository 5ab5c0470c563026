// Which slots names may fill, and under which name: decided from what exporters say of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "onnx_external/mapping.h"

namespace onnx_external {

enum class SlotRole : std::uint8_t {
  kByName,    // the rules may fill it
  kCallers,   // an input of the caller
  kKept,      // MappingOptions::keep: it keeps the data of the graph
  kExplicit,  // only an explicit pair may fill it: its value is not that of its name
  kFused,     // BatchNorm was multiplied into it: no key has its value
  kNone,      // no weight: an output of the graph
};

// How the rules see a slot.
struct SlotUse {
  SlotRole role = SlotRole::kByName;
  std::string_view name;  // the slot's, or that of the weight which was folded into it
  bool transposed = false;
};

// True when an initializer of the graph, or an input, says what it was: torch's newer exporter.
[[nodiscard]] bool states_origins(const GraphFacts& graph);

// Without the options: --inputs and --keep are the task's.
[[nodiscard]] SlotUse use_of(const Slot& slot, bool graph_states_origins);

// True when the slot can be no weight: an input with a symbolic dimension.
[[nodiscard]] bool has_symbolic_dimension(const Slot& slot);

// Names that exporters make up for values without one: "onnx::MatMul_8", "val_12", "/Add_output_0",
// "123". No state dict has them.
[[nodiscard]] bool is_invented_name(std::string_view name);

// "val_12": torch's newer exporter and its optimizer.
[[nodiscard]] bool is_lifted_name(std::string_view name);

// A transposed copy is recognised up to this many elements by its shape alone: to larger values the
// optimizer applies no other operator (onnxscript's limit for folding).
inline constexpr std::int64_t kFoldLimit = 8192;

}  // namespace onnx_external
