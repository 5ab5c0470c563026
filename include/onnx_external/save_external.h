// The whole job in one call: open the checkpoint, map, plan, write, verify, publish. Each step can
// also be called alone, in this order; nothing is visible in `target.folder` before the last:
//
//   const std::vector<std::filesystem::path> paths{"checkpoint.pt"};
//   const SaveTarget target{.folder = "out"};
//   const SaveOptions options;
//   auto checkpoint = open_checkpoint(paths, options.open);
//   auto graph = Model::load("graph.onnx");
//   auto keys = mapping_keys(*checkpoint);
//   auto mapping = map_tensors(graph->facts(), *keys, options.mapping,
//                              mapping_evidence(*graph, *checkpoint));
//   auto plan = plan_save(*graph, *checkpoint, *mapping, target, options.plan, options.write);
//   auto staged = write_plan(*plan, *graph, *checkpoint, target.folder, options.write);
//   const auto expected = expected_tensors(*plan, *graph, *checkpoint, staged->part_crcs());
//   auto report = verify_model_against(staged->model_path(), *checkpoint, expected);
//   if (report->ok()) {
//     auto published = staged->publish();
//   }
//
// (each `auto` is a Result to be looked at first).
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"
#include "onnx_external/test_data.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"

namespace onnx_external {

enum class Verification : std::uint8_t { kOff, kOn };
enum class RunMode : std::uint8_t { kWrite, kDryRun };  // kDryRun: report the plan, write nothing

// The options of each step, and what only the whole job has. A dry run reads tensors where the plan
// depends on their bytes (Dedup::kContent, Reuse::kEqualFiles).
struct SaveOptions {
  OpenOptions open;        // a scratch_dir left as it is means: beside the output
  MappingOptions mapping;  // with plan.dtype, casts are allowed
  PlanOptions plan;
  WriteOptions write;
  Verification verification = Verification::kOn;
  RunMode mode = RunMode::kWrite;

  // The checkpoint that the graph was exported from: what the graph holds is paired with it by
  // bytes (learn.h), and filled from the tensors of those names. Empty: names alone decide.
  std::vector<std::filesystem::path> learn_from;

  // Files of recorded inputs: each set in them becomes a test_data_set_N folder beside the model
  // (test_data.h). Read with the options in `open`, but for its key.
  std::vector<std::filesystem::path> test_data;

  // Where external data that the given graph already has is found. Empty: the graph's own folder,
  // or the current one for a graph from memory.
  std::filesystem::path source_dir;
};

// One initializer that was (or, in a dry run, would be) attached or copied along.
struct SavedTensor {
  std::string key;   // empty: data that the given graph already had
  std::string slot;  // the initializer's name, or another tensor's (ExternalTensor::name)
  std::optional<Rule> rule;
  Recipe recipe;     // how its bytes are made from the key's
  std::string file;  // location relative to the model's folder; empty = inside the model
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::int32_t data_type = 0;
  Shape dims;
};

struct SaveReport {
  std::filesystem::path model;
  std::vector<SavedTensor> tensors;
  std::vector<std::string> unmatched_keys;   // those of unused modules, too
  std::vector<std::string> baked_keys;       // of these: Mapping::baked_keys, and what was learned
  std::vector<UnusedModule> unused_modules;  // of the checkpoint: the graph uses nothing of them
  std::vector<OverlaidTensor> overlaid;  // keys of earlier checkpoints that a later one replaced
  std::vector<std::pair<std::string, std::string>> tied_keys;  // (leftover key, matched key)
  std::vector<std::string> inputs_left;
  std::vector<std::string> initializers_kept;
  std::vector<std::string> slots_left;
  std::vector<std::string> oversized;  // tensors larger than a shard may be; each has its own
  std::string alignment;
  std::uint64_t bytes = 0;         // of data files, or brought into the model with Layout::kInline
  std::uint64_t bytes_kept = 0;    // of these, written by a save that was killed: it was resumed
  std::uint64_t files_reused = 0;  // Reuse::kEqualFiles: of the replaced model, not written again
  std::uint64_t bytes_reused = 0;  // in these; not in `bytes`
  std::uint64_t linked_bytes = 0;  // Layout::kLink: of the ranges that the model refers to
  // Data files of the replaced model that stay because another model of the folder refers to them:
  // (location, name of such a model).
  std::vector<std::pair<std::string, std::string>> data_left_for;
  double seconds = 0;
  // Every byte was read back and is the checkpoint's; with Layout::kLink, every range was found to
  // be the checkpoint's own.
  bool verified = false;
  TestData test_data;  // a dry run lists here the dimensions that would be refused
};

// Writes `basepath`/`model_location` with its weights in `basepath`/`initializer_location` (the
// members of SaveTarget). Nothing half-written stays after an error; verification that finds a
// difference is kMismatch, and nothing is published. A dry run with an empty `basepath` looks at no
// folder. kInvalidArgument without `torch_load_paths`: that is relayout_model()'s job.
[[nodiscard]] Result<SaveReport> save_model_with_external_data(
    const std::filesystem::path& basepath, const std::string& model_location,
    const std::string& initializer_location,
    std::span<const std::filesystem::path> torch_load_paths, const onnx::ModelProto& onnx_model,
    const SaveOptions& options = {});

// The same from a graph file; its folder is the default source_dir.
[[nodiscard]] Result<SaveReport> save_graph_with_external_data(
    const std::filesystem::path& basepath, const std::string& model_location,
    const std::string& initializer_location,
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options = {});

// Gives the weights that a model has another layout; no slot is filled, so `open` is for test data
// alone, and `mapping` and `learn_from` are not used. GivenTensors::kStay means kMove here. What
// the manifest of the model knows of its bytes is checked while they are copied. Otherwise as
// above; kNotFound when the model has no weights to move.
[[nodiscard]] Result<SaveReport> relayout_model(const SaveTarget& target,
                                                const std::filesystem::path& model_path,
                                                const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> relayout_model(const SaveTarget& target,
                                                const onnx::ModelProto& model,
                                                const SaveOptions& options = {});

// Decides where every byte of a save goes: chooses a free name for the data, spreads the tensors
// over files or links them, and finds equal bytes and files to keep where `options` ask for that.
// Writes nothing, and reads tensors for these two alone. `write`: the options of the write_plan()
// that follows. With an empty `target.folder` no folder is looked at: the plan is that of a first
// save. The result does not depend on the number of threads.
//
// kAlreadyExists when the model or its data exists and may not be replaced; kInvalidArgument for
// names that are not plain file names, numbers out of range, more than kMaxShards shards, options
// that exclude each other, and (kLink) a file that stands neither in the folder nor below it or
// that has several names; kUnsupported for a tensor that ONNX cannot hold, for a model of more than
// 2^31-1 bytes, for data of the model that expands too far, for a tensor that is no plain, aligned
// range of a file (kLink), and for a file system without locks (kEqualFiles); kMismatch for a type
// that a slot does not have, and for a model that is not what its manifest says; kNotFound,
// kCorrupt, kIo, kCancelled.
[[nodiscard]] Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const SaveTarget& target,
                                         const PlanOptions& options, const WriteOptions& write);

// For a save that was refused, or left slots open: the text of a map file with all that the rules
// find, and the open slots with the keys that fit them (map_template()). `refusal`: the error's
// details. Reads metadata only. Errors as in opening; kNotFound when nothing is open.
[[nodiscard]] Result<std::string> map_template_text(
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options,
    const ErrorDetails* refusal = nullptr);

}  // namespace onnx_external
