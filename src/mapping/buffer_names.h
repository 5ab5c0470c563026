// Recognizes, by their names, tensors that are not weights of the graph: buffers, counters,
// parameters that only training uses, and weights of adapters.
#pragma once

#include <string_view>

#include "onnx_external/mapping.h"

namespace onnx_external {

// Recognizes buffers that models compute from their configuration and exporters bake into graphs:
// the frequencies of rotary embeddings, causal masks, position ids (docs/mapping.md has the list).
// A checkpoint may or may not contain them; training never changes them.
[[nodiscard]] bool is_baked_buffer(std::string_view name, const Shape& shape);

// Recognizes parameters that replace masked patches or frames during training. A graph without
// masking lacks them, although it has all other weights of the same module.
[[nodiscard]] bool is_training_parameter(std::string_view name);

// Recognizes scalars that training uses as counters, and that no model uses in its computation.
[[nodiscard]] bool is_counter_name(std::string_view name);

// Recognizes weights of an adapter (LoRA, IA3, ...), which must be merged into a base model.
// Returns the component of the name that shows this, such as "lora_A"; "" for other names.
[[nodiscard]] std::string_view adapter_component(std::string_view name);

}  // namespace onnx_external
