// Recognizes, by their names, tensors that are not weights of the graph: buffers, counters,
// parameters that only training uses, and weights of adapters.
#pragma once

#include <string_view>

#include "onnx_external/mapping.h"

namespace onnx_external {

// Recognizes buffers that models compute from their configuration and that exporters store in
// graphs, such as the frequencies of rotary embeddings, causal masks and position ids
// (docs/mapping.md has the list). Training never changes these buffers, and a checkpoint need not
// contain them.
[[nodiscard]] bool is_baked_buffer(std::string_view name, const Shape& shape);

// Recognizes parameters that replace masked patches or frames during training. A graph for
// inference lacks them, although it has all other weights of the same module.
[[nodiscard]] bool is_training_parameter(std::string_view name);

// Recognizes scalars that count during training and that models do not use for their outputs.
[[nodiscard]] bool is_counter_name(std::string_view name);

// Recognizes weights of an adapter (LoRA, IA3, ...), which must be merged into a base model.
// Returns the component of the name that shows this, such as "lora_A"; "" for other names.
[[nodiscard]] std::string_view adapter_component(std::string_view name);

}  // namespace onnx_external
