// Reads tensor bytes to answer what names, types and shapes leave open in a mapping.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

// The questions that map_tensors() may ask about a model and a checkpoint; both must outlive the
// returned functions. Keys are indices into mapping_keys(checkpoint), slots are indices into
// model.facts() before anything is attached.
//
// Two tensors are read side by side, in chunks of at most 1 MiB, up to the first difference. To
// compare a transposed tensor, each side is read in full once, even if it is asked about again.
// Answers are cached. Types must be equal and bits are compared: 0.0 differs from -0.0, and a NaN
// equals itself. A slot holds nothing if it has no data, or if several graphs define its name.
// Errors: kIo; kCorrupt and kNotFound if the graph's external data is damaged or missing.
// One thread at a time.
[[nodiscard]] MappingEvidence mapping_evidence(const Model& model, const Checkpoint& checkpoint);

}  // namespace onnx_external
