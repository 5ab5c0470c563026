// Looks up the CRC-32s that the manifest of a loaded model records for the data that a save copies
// from this model.
#pragma once

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Stores in the plan the CRC-32 of each tensor that comes from a model, if the model's manifest
// records it for the same file and range. Does nothing for a model without a manifest, or if all
// its tensors come from a checkpoint. Fails with kCorrupt if the manifest is invalid, and with
// kMismatch if it was written for another model file or contradicts the model file. If the manifest
// cannot be read, the error is kIo.
[[nodiscard]] Status note_recorded_crcs(const SourceModels& models, SavePlan& plan);

}  // namespace onnx_external
