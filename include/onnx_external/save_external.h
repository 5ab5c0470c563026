// The whole job in one call: open the checkpoint, map, plan, write, verify, publish.
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
// kEqualFiles: where a model is replaced, data files whose bytes do not change are kept
// (keep_equal_files()); the others get new names, as always.
enum class Reuse : std::uint8_t { kNo, kEqualFiles };
enum class RunMode : std::uint8_t { kWrite, kDryRun };  // kDryRun: report the plan, write nothing

struct SaveOptions {
  OpenOptions open;  // its threads are those of `write`
  MappingOptions mapping;
  // The checkpoint that the graph was exported from: what the graph holds is paired with it by
  // bytes (learn.h), and filled from the tensors of those names. Empty: names alone decide.
  std::vector<std::filesystem::path> learn_from;
  WriteOptions write;
  Verification verification = Verification::kOn;
  RunMode mode = RunMode::kWrite;
  // For layouts with data files, and one process. A dry run compares, too.
  Reuse reuse = Reuse::kNo;

  // How the data is laid out (plan.h). max_shard_bytes is for kShards, alignment for all but
  // kPerTensor. A dry run with Dedup::kContent reads the tensors that could be equal.
  Layout layout = Layout::kPerTensor;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  std::optional<std::uint64_t> alignment = {};
  Dedup dedup = Dedup::kStorage;
  // PlanOptions::inline_below. Without a checkpoint the tensors that the graph holds move, those of
  // attributes when asked.
  std::uint64_t inline_below = 0;
  bool attributes = false;

  // Floats from the checkpoint become this type; slots that state another one are refused. One of
  // can_cast_to(). (mapping.casts converts to what each slot states.)
  std::optional<DType> dtype = {};

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

// Writes `basepath`/`model_location` with its weights in `basepath`/`initializer_location`. Without
// `torch_load_paths` the weights that the model has get the layout. Nothing half-written stays
// after an error; verification that finds a difference is kMismatch, and nothing is published. A
// dry run with an empty `basepath` looks at no folder.
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

// For a save that was refused, or left slots open: the text of a map file with all that the rules
// find, and the open slots with the keys that fit them (map_template()). `refusal`: the error's
// details. Reads metadata only. Errors as in opening; kNotFound when nothing is open.
[[nodiscard]] Result<std::string> map_template_text(
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options,
    const ErrorDetails* refusal = nullptr);

}  // namespace onnx_external
