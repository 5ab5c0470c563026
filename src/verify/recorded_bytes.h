// If a save takes tensor data from a loaded model that has a manifest, looks up the CRC-32s that
// the manifest records for this data.
#pragma once

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Stores in the plan the CRC-32 of each tensor that comes from a model, if the model's manifest
// records it for the same file and range. Does nothing for a model without a manifest, or if all
// its tensors come from a checkpoint. kCorrupt: the manifest cannot be read; kMismatch: the model
// file is not the one for which the manifest was written, or contradicts it; kIo.
[[nodiscard]] Status note_recorded_crcs(const SourceModels& models, SavePlan& plan);

}  // namespace onnx_external
