// Compares tensors of a model and a checkpoint by their bytes, for the cases in which names, types
// and shapes leave a mapping ambiguous.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Returns the functions that map_tensors() calls when it needs bytes of the model or the
// checkpoint; both must outlive them. Keys are indices into mapping_keys(checkpoint), slots are
// indices into model.facts() before anything is attached.
//
// Two tensors are read side by side, in chunks of at most 1 MiB, up to the first difference. To
// compare a transposed tensor, each side is read in full once, however often it is compared.
// Answers are cached. Types must be equal and bits are compared: 0.0 differs from -0.0, and a NaN
// equals itself. A slot equals no key if it has no data, or if several graphs define its name.
// Errors: kIo; kCorrupt and kNotFound if the graph's external data is damaged or missing. For one
// thread at a time.
[[nodiscard]] MappingEvidence mapping_evidence(const Model& model, const Checkpoint& checkpoint);

}  // namespace onnx_external
