// What a given model's manifest knows of the bytes that a save takes from that model.
#pragma once

#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Notes in the plan the CRC-32 of each tensor that comes from the model, where the model's manifest
// has it for the very place that the model refers to. Nothing is done for a model without a
// manifest, and for a plan that takes its tensors from a checkpoint alone.
// kCorrupt: the manifest cannot be read; kMismatch: the model file is not the one that it was
// written for, or contradicts it; kIo.
[[nodiscard]] Status note_recorded_crcs(const Model& model, SavePlan& plan);

}  // namespace onnx_external
