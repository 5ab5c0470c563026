// The steps that attaching a checkpoint and giving a model another layout have in common:
// everything except the mapping.
#pragma once

#include <onnx/onnx_pb.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

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

// The given model, with its external data in options.source_dir.
[[nodiscard]] Result<Model> given_model(const onnx::ModelProto& proto, const SaveOptions& options);
[[nodiscard]] Result<Model> given_model(const std::filesystem::path& path,
                                        const SaveOptions& options);

// The options with which the job's checkpoints are opened: SaveOptions::open, completed.
[[nodiscard]] OpenOptions open_options(const SaveJob& job);

// Checks that the target is free, so that a save fails before anything is read.
[[nodiscard]] Status check_target(const SaveJob& job);

// Fills in plan, inputs and report. Writes nothing. Requires: model and checkpoint.
[[nodiscard]] Status plan_job(SaveJob& job, const MappingKeys& keys, const Mapping& mapping);

// Writes the plan, reads it back and publishes it. A dry run only reports.
[[nodiscard]] Result<SaveReport> carry_out(SaveJob job);

}  // namespace onnx_external
