// Plans a save in all its steps: checks, layout, deduplication, quantization, links. The last step
// adds facts about the sources. These are a hash that identifies the save, so that a killed save is
// resumed only by the same save, and the holes in the checkpoint (ranges of zeros without disk
// blocks) that the data files can also have.
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/own_weights.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Returns the name for the graph of a single model in messages.
[[nodiscard]] std::string graph_name(const Model& model);

// Works like plan_save(), but for models with the names `names`, and without checking the options
// and the target, whose data folder is chosen already, and without note_sources(). `own` has the
// models' own weights in the checkpoint; without it, these stay in float. Requires: there are as
// many models as names and mappings.
[[nodiscard]] Result<SavePlan> plan_models(std::span<const Model> models,
                                           std::span<const std::string> names,
                                           const Checkpoint& checkpoint,
                                           std::span<const Mapping> mappings,
                                           const SaveTarget& target, const PlanOptions& options,
                                           const WriteOptions& write, const OwnWeights& own);

// Fills in SavePlan::job and PlannedFile::hole_bytes, as the last step of plan_save(), which a dry
// run omits. Opens each file of the models' own data. Errors: kIo.
[[nodiscard]] Status note_sources(std::span<const Model> models, const Checkpoint& checkpoint,
                                  const WriteOptions& write, SavePlan& plan);

// Returns SavePlan::job for a plan that is otherwise complete. It is a hash, in 64 hex digits, of
// the plan and of the stamps of all source files (SourceFile::stamp()). Two saves have the same
// hash only if they write the same files. With kLink, which writes no data files, only the files of
// the checkpoint are hashed. Errors: kIo; errors of opening the models' own data.
[[nodiscard]] Result<std::string> name_job(const SavePlan& plan, const SourceModels& models,
                                           const Checkpoint& checkpoint);

// Fills in PlannedFile::hole_bytes. Makes one system call for each file of the checkpoint, and one
// for each hole.
void note_holes(const Checkpoint& checkpoint, SavePlan& plan);

}  // namespace onnx_external
