// The steps that attaching a checkpoint and giving models another layout have in common: everything
// except the mapping. A model alone is a set of one.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/test_data.h"
#include "save/own_weights.h"

namespace onnx_external {

// One save: its inputs, its plan and its report.
struct SaveJob {
  SaveTarget target;  // `model_name` is not used
  SaveOptions options;
  std::vector<std::string> names = {};  // of the models
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<Model> models = {};  // freed once they have been written
  std::optional<Checkpoint> checkpoint = {};
  OwnWeights own = {};  // of `models`, where the options quantize
  SavePlan plan = {};
  RecordedInputs inputs = {};
  SaveReport report = {};

  // Messages name the model only if there are several.
  [[nodiscard]] bool is_of_one() const { return names.size() == 1; }
};

// Returns whether this process verifies and publishes: the first of its team.
[[nodiscard]] inline bool leads(const WriteOptions& options) {
  return options.team == nullptr || options.team->rank == 0;
}

// The graph of a model alone, for messages.
[[nodiscard]] std::string graph_name(const Model& model);

// The inputs of a save: graphs, and checkpoints to open, a checkpoint that is open, or none.
struct SaveInputs {
  std::vector<GraphToSave> graphs;
  std::span<const std::filesystem::path> paths = {};
  std::optional<Checkpoint> checkpoint = {};
  // Data of graphs in memory: entries of kInMemoryLocation (onnx/model_access.h) refer to it by its
  // index. Bytes and element type must agree, but kUInt8 stands for any type; the shape is the
  // graph's. Names serve messages only and may be empty.
  std::vector<ProvidedTensor> tensors = {};
};

// Checks the options and that the target is free, so that a save fails before anything is read,
// then opens the inputs. Before that, it recovers the folder from killed saves. The checkpoint also
// gets the tensors that the options define, and the data of graphs in memory behind its keys.
[[nodiscard]] Result<SaveJob> start_job(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options);

// The options with which the checkpoints of a save into `folder` are opened: SaveOptions::open,
// completed.
[[nodiscard]] OpenOptions open_options(const SaveOptions& options,
                                       const std::filesystem::path& folder);

// Does the same as plan_save() without note_sources(), for models called `names`. The model's name
// in `target` is not used. `own`: the models' own weights in the checkpoint; without it these stay
// in float. Requires: as many models, names and mappings; check_option_rules() succeeds.
[[nodiscard]] Result<SavePlan> plan_models(std::span<const Model> models,
                                           std::span<const std::string> names,
                                           const Checkpoint& checkpoint,
                                           std::span<const Mapping> mappings,
                                           const SaveTarget& target, const PlanOptions& options,
                                           const WriteOptions& write, const OwnWeights& own = {});

// The last step of plan_save(), which a dry run leaves out: fills in the facts about the sources,
// SavePlan::job and PlannedFile::hole_bytes. Opens each file of the models' own data. kIo.
[[nodiscard]] Status note_sources(std::span<const Model> models, const Checkpoint& checkpoint,
                                  const WriteOptions& write, SavePlan& plan);

// Fills in plan, inputs and report, by one mapping for each model. Writes nothing.
[[nodiscard]] Status plan_job(SaveJob& job, const MappingKeys& keys,
                              std::span<const Mapping> mappings);

// Writes the plan, reads it back and publishes it. A dry run only reports.
[[nodiscard]] Result<SaveReport> carry_out(SaveJob job);

// Runs `save` with the same options. If the progress function cancels it, the error has the folder
// and the phase. An error of something else that cancels, such as SaveOptions::before_publish,
// stays unchanged.
[[nodiscard]] Result<SaveReport> noting_cancellation(
    const SaveTarget& target, const SaveOptions& options,
    const std::function<Result<SaveReport>(const SaveOptions&)>& save);

// save_graphs_with_external_data() and relayout_models(), which take what is given.
[[nodiscard]] Result<SaveReport> attach(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options);
[[nodiscard]] Result<SaveReport> relayout(const SaveTarget& target, SaveInputs inputs,
                                          const SaveOptions& options);

}  // namespace onnx_external
