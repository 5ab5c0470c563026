// Creates the plan of a save, which states the data of each tensor and the position where it is
// written. Later steps change this plan: they merge equal tensors, quantize matrices, or link data
// (save/link.h).
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"
#include "save/own_weights.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Creates the plan for models with the names `names`, which share data ranges like tied tensors of
// one model. A pure function that reads no tensor data. Offsets follow the order of the mappings'
// pairs. With kLink, offsets are those in the checkpoint's files, whose names are empty until
// link_files(). Dedup::kContent is treated as kStorage. Errors are those of plan_save().
// Requires: there are as many models as names and mappings, and only one with kInline, because
// several could not share data; `data_dir` was returned by choose_data_dir().
[[nodiscard]] Result<SavePlan> make_plan(std::span<const Model> models,
                                         std::span<const std::string> names,
                                         const Checkpoint& checkpoint,
                                         std::span<const Mapping> mappings,
                                         const PlanOptions& options, const std::string& data_dir);

// Creates the plan for a single model.
[[nodiscard]] inline Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                                const Mapping& mapping, const PlanOptions& options,
                                                const SaveTarget& target = {}) {
  return make_plan({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1}, options,
                   target.data_dir);
}

// Implements Dedup::kContent. Reads tensors of equal size to find those with equal bytes (by
// CRC-32, then SHA-256), and plans one range for all of them. Does nothing with kInline. The result
// does not depend on the number of threads. Errors are those of make_plan(), kIo, kCorrupt and
// kCancelled. With kLink, which stores nothing, fails with kInvalidArgument.
[[nodiscard]] Result<SavePlan> merge_equal_bytes(SavePlan plan, const SourceModels& models,
                                                 const Checkpoint& checkpoint,
                                                 const PlanOptions& options, int threads = 0,
                                                 const ProgressFn& progress = nullptr);

// Replaces each tensor that is quantized by the parts of its matrices (onnx/matrix_choice.h), in
// consecutive ranges, and lays out all ranges again. Matrices of the same range with the same rows
// and scheme share their parts. Weights in the models themselves are read through `own`, and stay
// unchanged if `own` is empty. Fills in PlannedModel::matrices. A pure function. Fails with
// kUnsupported if nothing can be quantized, or if a form needs a newer opset. Fails with kNotFound
// if a pattern of the options is not used for any matrix. Other errors are those of make_plan().
[[nodiscard]] Status quantize_plan(const SourceModels& models, const Checkpoint& checkpoint,
                                   const PlanOptions& options, MatchedInputs inputs,
                                   const OwnWeights& own, SavePlan& plan);

}  // namespace onnx_external
