// Implements the steps of saves that attach a checkpoint to models, or that write models in another
// layout. Except for the mapping, both kinds of saves have the same steps. A save writes a set of
// one or more models that share their data.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jobs/plan_models.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/test_data.h"
#include "onnx_external/writer.h"
#include "save/output_folder.h"
#include "save/own_weights.h"

namespace onnx_external {

// The state of one save: its inputs, its plan and its report.
struct SaveJob {
  SaveTarget target;  // `data_folder` is the chosen folder; `model_name` is not used
  SaveOptions options;
  std::vector<std::string> names = {};  // names of the models
  // The output folder, until the plan is written. Not opened by dry runs, and by teams only when
  // they write: all processes of a team have to learn that this fails.
  std::optional<OutputFolder> folder = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<Model> models = {};  // freed once they have been written
  std::optional<Checkpoint> checkpoint = {};
  OwnWeights own = {};  // weights of `models`, if the options quantize
  SavePlan plan = {};
  RecordedInputs inputs = {};
  SaveReport report = {};

  // Returns whether there is a single model. If there are several, messages also state the model.
  [[nodiscard]] bool is_of_one() const { return names.size() == 1; }
};

// The inputs of a save: graphs, and the paths of checkpoints, an open checkpoint, or neither.
struct SaveInputs {
  std::vector<GraphToSave> graphs;
  std::span<const std::filesystem::path> paths = {};
  std::optional<Checkpoint> checkpoint = {};
  // The data of graphs in memory. External data entries with kInMemoryLocation
  // (onnx/model_access.h) refer to these tensors by index. A tensor must have the number of bytes
  // and the element type that the graph states, except that kUInt8 stands for any type. The shape
  // is that of the graph. Names are used only in messages and may be empty.
  std::vector<ProvidedTensor> tensors = {};
};

// Opens the output folder, and checks the options and that the target is free, so that a save fails
// before anything is read. Then opens the inputs. Adds the tensors that the options define to the
// checkpoint, and appends the data of graphs in memory after its keys.
[[nodiscard]] Result<SaveJob> start_job(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options);

// Returns the options for opening the checkpoints of a save into `folder`. These are
// SaveOptions::open, except that the default scratch folder is replaced by a folder next to the
// output.
[[nodiscard]] OpenOptions open_options(const SaveOptions& options,
                                       const std::filesystem::path& folder);

// Fills in the plan and the recorded inputs from one mapping for each model. Writes nothing.
[[nodiscard]] Status plan_job(SaveJob& job, std::span<const Mapping> mappings);

// Writes the planned files, reads them back, publishes them, and reports what was done. A dry run
// only reports.
[[nodiscard]] Result<SaveReport> carry_out(SaveJob job, const MappingKeys& keys,
                                           std::span<const Mapping> mappings);

// Verifies the staged models, publishes them, and completes the report.
[[nodiscard]] Result<SaveReport> finish_job(SaveJob job, StagedSave staged, const MappingKeys& keys,
                                            std::span<const Mapping> mappings);

// Maps the graph of a job by an old checkpoint: learns which key fills each slot, then maps.
[[nodiscard]] Result<std::vector<Mapping>> map_by_learning(const SaveJob& job,
                                                           const GraphToMap& graph,
                                                           const MappingKeys& keys,
                                                           const MappingOptions& options);

// The options of a save, with a progress function that also records the phase in which the caller
// cancels the save.
class NotedPhase {
 public:
  explicit NotedPhase(const SaveOptions& options);
  NotedPhase(const NotedPhase&) = delete;
  NotedPhase& operator=(const NotedPhase&) = delete;
  ~NotedPhase() = default;

  [[nodiscard]] const SaveOptions& options() const { return options_; }

  // Returns the report of a save that ran with these options. If the progress function cancelled
  // the save, the folder and the phase are added to the error. If something else cancelled the
  // save, such as SaveOptions::before_publish, the error stays unchanged.
  [[nodiscard]] Result<SaveReport> explain(Result<SaveReport> report,
                                           const std::filesystem::path& folder) const;

 private:
  std::optional<Phase> phase_;
  SaveOptions options_;
};

// Implement save_graphs_with_external_data() and relayout_models(), respectively.
[[nodiscard]] Result<SaveReport> attach(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options);
[[nodiscard]] Result<SaveReport> relayout(const SaveTarget& target, SaveInputs inputs,
                                          const SaveOptions& options);

}  // namespace onnx_external
