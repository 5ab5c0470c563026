// The steps that attaching a checkpoint and giving models another layout have in common: everything
// except the mapping. A model alone is a set of one.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/test_data.h"
#include "save/own_weights.h"

namespace onnx_external {

// One save: its inputs, its plan and its report.
struct SaveJob {
  SaveTarget target;  // its data folder is the chosen one; `model_name` is not used
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

// Fills in plan, inputs and report, by one mapping for each model. Writes nothing.
[[nodiscard]] Status plan_job(SaveJob& job, const MappingKeys& keys,
                              std::span<const Mapping> mappings);

// Writes the plan, reads it back and publishes it. A dry run only reports.
[[nodiscard]] Result<SaveReport> carry_out(SaveJob job);

// The options of a save, with a progress function that also notes in which phase it cancels the
// save.
class NotedPhase {
 public:
  explicit NotedPhase(const SaveOptions& options);
  NotedPhase(const NotedPhase&) = delete;
  NotedPhase& operator=(const NotedPhase&) = delete;
  ~NotedPhase() = default;

  [[nodiscard]] const SaveOptions& options() const { return options_; }

  // The report of a save with these options. If the progress function cancelled it, the error gets
  // the folder and the phase. An error of something else that cancels, such as
  // SaveOptions::before_publish, stays unchanged.
  [[nodiscard]] Result<SaveReport> explain(Result<SaveReport> report,
                                           const std::filesystem::path& folder) const;

 private:
  std::optional<Phase> phase_;
  SaveOptions options_;
};

// save_graphs_with_external_data() and relayout_models(), which take what is given.
[[nodiscard]] Result<SaveReport> attach(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options);
[[nodiscard]] Result<SaveReport> relayout(const SaveTarget& target, SaveInputs inputs,
                                          const SaveOptions& options);

}  // namespace onnx_external
