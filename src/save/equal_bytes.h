// Implements Dedup::kContent, which stores tensors with equal bytes once.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Reads tensors of equal size to find those with equal bytes (by CRC-32, then SHA-256), and plans
// one range for all of them. Does nothing with kInline. The result does not depend on the number of
// threads. Errors are those of make_plan(), kIo, kCorrupt and kCancelled. With kLink, which stores
// nothing, fails with kInvalidArgument.
[[nodiscard]] Result<SavePlan> merge_equal_bytes(SavePlan plan, const SourceModels& models,
                                                 const Checkpoint& checkpoint,
                                                 const PlanOptions& options, int threads = 0,
                                                 const ProgressFn& progress = nullptr);

}  // namespace onnx_external
