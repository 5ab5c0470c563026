// Answers from bytes to what names, types and shapes leave open, for the mapping.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"

namespace onnx_external {

// What map_tensors() may ask of these two, which must outlive the answer; the keys are those of
// mapping_keys(checkpoint), the slots those of model.facts() before anything is attached.
//
// Two tensors are read side by side, in pieces of at most 1 MiB, up to the first difference; for a
// transposed one each side is read once, whatever is asked of it later. Answers are remembered.
// Types must be equal, and bits decide: 0.0 is not -0.0, and a NaN equals itself. A slot without
// data, or whose data is that of a name which several graphs define, holds nothing.
// Failures: kIo; kCorrupt and kNotFound for external data of the graph that is not there.
// One thread at a time.
[[nodiscard]] MappingEvidence mapping_evidence(const Model& model, const Checkpoint& checkpoint);

}  // namespace onnx_external
