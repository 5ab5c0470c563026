// The steps that attaching a checkpoint and giving a model another layout have in common:
// everything except the mapping.
#pragma once

#include <onnx/onnx_pb.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/test_data.h"

namespace onnx_external {

// One save: its inputs, its plan and its report.
struct SaveJob {
  SaveTarget target;
  SaveOptions options;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::optional<Model> model = {};  // freed once it has been written
  std::optional<Checkpoint> checkpoint = {};
  SavePlan plan = {};
  RecordedInputs inputs = {};
  SaveReport report = {};

  // The graph, for messages.
  [[nodiscard]] std::string graph_name() const {
    return model->path().empty() ? "the given graph" : model->path().string();
  }
};

// The reports of the tensors of one model of the plan, which gives its texts away.
[[nodiscard]] std::vector<SavedTensor> saved_tensors(
    SavePlan& plan, const std::map<std::size_t, Overflow>& overflows = {},
    std::uint32_t member = 0);

// What a report says of keys: those of the mapping, and the overlaid ones.
void report_keys(const MappingKeys& keys, const Mapping& mapping, const Checkpoint& checkpoint,
                 SaveReport& report);
// What a report says of one graph.
void report_graph(const Model& model, const Mapping& mapping, const MappingOptions& options,
                  SaveReport& report);
// What a report says of the data files of a plan.
void report_data(const SavePlan& plan, SaveReport& report);

// How a staged save is read back; without a manifest, which each model has.
[[nodiscard]] VerifyOptions verify_options(const SavePlan& plan, const SaveOptions& options,
                                           const std::filesystem::path& folder);
[[nodiscard]] Error verification_failed(const Finding& first, std::size_t findings);

// If all floats are converted to one type, the types of keys do not matter for the mapping. The
// plan refuses slots that state another type.
[[nodiscard]] MappingOptions mapping_options(const SaveOptions& options);

// A mapping that fills nothing: open slots stay open. Inputs that have the names of weights count
// as such, unless the options name them as the caller's.
[[nodiscard]] Mapping unmapped(const GraphFacts& graph, const MappingOptions& options);

// The given model, with its external data in options.source_dir.
[[nodiscard]] Result<Model> given_model(const onnx::ModelProto& proto, const SaveOptions& options);
[[nodiscard]] Result<Model> given_model(const std::filesystem::path& path,
                                        const SaveOptions& options);
[[nodiscard]] Result<Model> given_model(Model model, const SaveOptions& options);

// The options with which the checkpoints of a save into `folder` are opened: SaveOptions::open,
// completed.
[[nodiscard]] OpenOptions open_options(const SaveOptions& options,
                                       const std::filesystem::path& folder);

// The model may replace an old model, but never the checkpoint that is being read.
[[nodiscard]] Status check_is_no_input(const std::filesystem::path& model,
                                       const Checkpoint& checkpoint);

// Checks that the target is free, so that a save fails before anything is read. Sets that were cut
// off in the folder are completed first.
[[nodiscard]] Status check_target(const SaveJob& job);

// Fills in plan, inputs and report. Writes nothing. Requires: model and checkpoint.
[[nodiscard]] Status plan_job(SaveJob& job, const MappingKeys& keys, const Mapping& mapping);

// Writes the plan, reads it back and publishes it. A dry run only reports.
[[nodiscard]] Result<SaveReport> carry_out(SaveJob job);

}  // namespace onnx_external
