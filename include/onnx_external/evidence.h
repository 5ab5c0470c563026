// Compares tensors of a model and a checkpoint by their bytes, for the cases in which names, types
// and shapes leave a mapping ambiguous.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Returns the functions that map_tensors() calls when it needs bytes of the model or the
// checkpoint. The model and the checkpoint must outlive these functions. Keys are indices into
// mapping_keys(checkpoint), slots are indices into model.facts() before anything is attached.
//
// Two tensors are read side by side, in chunks of at most 1 MiB, up to the first difference. A
// tensor that must be compared in transposed form is read in full, but only once, however often it
// is compared. Results are cached. Two tensors are equal if they have the same type and the same
// bits: 0.0 differs from -0.0, and a NaN equals itself. A slot without data, or whose name several
// graphs define, does not equal any key. Errors: kIo; kCorrupt and kNotFound if the graph's
// external data is damaged or missing. The functions may be called from one thread at a time.
[[nodiscard]] MappingEvidence mapping_evidence(const Model& model, const Checkpoint& checkpoint);

}  // namespace onnx_external
