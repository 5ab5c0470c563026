// Saves a graph and a checkpoint as a model with external data in one call, which opens the
// checkpoint, maps its tensors to the graph, plans, writes, verifies and publishes. These steps can
// also be called one by one, in this order. Nothing is visible in `target.folder` before the last
// step:
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
//   const auto expected = expected_tensors(*plan, *graph, *checkpoint, staged->range_crcs());
//   auto report = verify_model_against(staged->model_path(), *checkpoint, expected);
//   if (report->ok()) {
//     auto published = staged->publish();
//   }
//
// (A real program checks each Result before it uses the value.)
//
// The functions keep no state, and any number of them may run at the same time, even with the same
// model and checkpoint. They return when all threads that they started have ended. A save locks its
// output folder: if another save into this folder begins, in this process or another, it fails at
// once with kBusy.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
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

// kDryRun: report the plan and write nothing. Tensors are read if the plan depends on their bytes
// (Dedup::kContent).
enum class RunMode : std::uint8_t { kWrite, kDryRun };

// The options of each step, and the options of the save as a whole.
struct SaveOptions {
  OpenOptions open;        // if scratch_dir is the default, the output folder is used instead
  MappingOptions mapping;  // if plan.dtype is set, casts are allowed
  PlanOptions plan;
  WriteOptions write;
  Verification verification = Verification::kOn;
  RunMode mode = RunMode::kWrite;

  // The checkpoint that the graph was exported from. Data in the graph is paired with the tensors
  // of this old checkpoint by their bytes (learn.h), and is then replaced by the new tensors of the
  // same names. If empty, nothing is learned.
  std::vector<std::filesystem::path> learn_from;
  // The old checkpoint, if it is already open or in memory; not owned. It takes precedence over
  // `learn_from`.
  const Checkpoint* learn_from_open = nullptr;

  // Files of recorded inputs. Each input set in them becomes a test_data_set_N folder next to the
  // model (test_data.h). They are read with the options in `open`, except for its key.
  std::vector<std::filesystem::path> test_data;

  // The folder that locations of the graph's existing external data are relative to. If empty, it
  // is the graph's own folder, or the current folder for a graph from memory.
  std::filesystem::path source_dir;

  // Called in the working thread when the whole save is staged and verified, right before it is put
  // in place. It may add files that belong next to the model. If it returns an error, the save
  // fails and nothing is changed. If the save fails later, the caller must undo what this function
  // did.
  std::function<Status()> before_publish;
};

// One tensor of the written model (in a dry run, of the model that would be written).
struct SavedTensor {
  std::string key;   // empty for data that the graph already had
  std::string slot;  // the name of the initializer or other tensor (ExternalTensor::name)
  std::optional<Rule> rule;
  Recipe recipe;     // how its bytes are made from the key's
  std::string file;  // relative to the model's folder; empty = inside the model
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::int32_t data_type = 0;
  Shape dims;
  Overflow overflow;                        // values that became infinite when they were converted
  std::optional<PackedTensor> packed = {};  // set for a part of a quantized matrix
};

// A matrix of a graph that a save quantizes (PlanOptions::quantize).
struct SavedMatrix {
  std::string weight;        // the graph's name; several matrices may be parts of one weight
  std::string key;           // empty: the weight is in the graph
  std::string role;          // "linear", "head", "embedding"
  bool is_gathered = false;  // an embedding reads it, perhaps in addition to a head
  Scheme scheme;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t bytes_before = 0;  // in the graph's type
  std::uint64_t bytes = 0;         // size of codes, scales and zero points
  // The root mean square of the quantization error, divided by the root mean square of the values.
  // A dry run computes it from a few rows. Nullopt if it is not known, because another process or a
  // killed save made the codes, and for kept codes, which lose nothing.
  std::optional<double> error = {};
  // The reason why the checkpoint's codes for this matrix are not kept; "" if they are kept, or if
  // the checkpoint has none.
  std::string unkept = {};
};

// A float weight of a graph that a quantizing save leaves unchanged.
struct FloatWeight {
  std::string weight;
  std::string reason;  // "Conv reads it"
  std::uint64_t bytes = 0;
};

// One of the graphs of a save.
struct GraphToSave {
  std::string model_name;  // "encoder.onnx"; with several graphs, it must end with ".onnx"
  // A file, a loaded model, or a model in memory that outlives the call.
  std::variant<std::filesystem::path, Model, const onnx::ModelProto*> graph;
};

// One of the models of a save.
struct SavedModel {
  std::filesystem::path model;
  std::string manifest;  // relative to the model's folder
  std::vector<SavedTensor> tensors;
  // The names that no key fills: those of left_names(), and the values in nodes and functions that
  // have no data (kMissing). The functions below list subsets of them.
  std::vector<LeftName> left;
  // The slots and Constant nodes that MappingOptions::keep names, in the order of the option.
  std::vector<std::string> kept_by_option;
  bool complete = true;    // every weight has its value: slots_left() and left_old() are empty
  std::string key_prefix;  // Mapping::key_prefix
  // The total size of the ranges of data files that the model refers to, whether shared or not;
  // with Layout::kInline, the size of the data in the model.
  std::uint64_t bytes = 0;
  // Irregularities of the given model's external data. Prepacked weights of ONNX Runtime and
  // basepath are left out of the written model; the rest is written as usual.
  std::vector<CountedRemark> remarks;
  // Set with PlanOptions::quantize, in the order of the graph.
  std::vector<SavedMatrix> quantized = {};
  std::vector<FloatWeight> floats = {};

  // Returns the names with the first of the verdicts, in their order, then those with the second
  // verdict, and so on.
  [[nodiscard]] std::vector<std::string> names_with(
      std::initializer_list<SlotVerdict> verdicts) const;
  // The inputs of the caller; inputs that may be weights come last.
  [[nodiscard]] std::vector<std::string> inputs_left() const;
  [[nodiscard]] std::vector<std::string> initializers_kept() const;  // keep the graph's data
  // Returns the names that have no data. If there are any, no runtime can open the model.
  [[nodiscard]] std::vector<std::string> slots_left() const;
  // Returns the names that keep old values, because the checkpoint lacks the weights.
  [[nodiscard]] std::vector<std::string> left_old() const;
};

// A key that fills no slot.
struct LeftKey {
  std::string name;
  KeyVerdict verdict = KeyVerdict::kUnused;
  bool in_unused_module = false;  // MappedKey::in_unused_module
  std::string tied_to = {};       // for a tied key: the used key
};

// The result of a save: its models, and the keys and data files that they share.
struct SaveReport {
  std::filesystem::path folder;
  std::vector<SavedModel> models;  // one for each graph, in order
  // The keys that fill no slot, in checkpoint order. Keys whose values are in the graph according
  // to a learned map are kBaked. The functions below list subsets of these keys.
  std::vector<LeftKey> keys;
  std::vector<UnusedModule> unused_modules;  // modules in the checkpoint that no graph uses
  std::vector<std::string> notes;            // Checkpoint::notes()
  std::vector<OverlaidTensor> overlaid;      // tensors that a later checkpoint replaced
  bool complete = true;                      // all models are complete
  std::vector<DerivedTensor> derived;        // MappingOptions::derived
  std::vector<std::string> oversized;  // tensors larger than a shard may be; each has its own shard
  std::uint64_t bytes = 0;             // size of the data files; with Layout::kInline, of inline
                                       // data
  std::uint64_t bytes_resumed = 0;     // of these, written by the killed save that was resumed
  std::uint64_t linked_bytes = 0;      // with Layout::kLink: of the ranges that the models refer to
  // Data files of replaced models that are kept because another model in the folder refers to them.
  // Each is a pair of a location and the name of such a model.
  std::vector<std::pair<std::string, std::string>> data_left_for;
  double seconds = 0;
  // True if every byte that was written was read back and equals the checkpoint's. With
  // Layout::kLink, true if every range is known to be the checkpoint's own. This does not mean that
  // nothing is missing (see `complete`).
  bool verified = false;
  TestData test_data;  // in a dry run, its dimensions include those that a save would reject

  // Returns the keys with the first of the verdicts, in their order, then those with the second
  // verdict, and so on.
  [[nodiscard]] std::vector<std::string> keys_with(
      std::initializer_list<KeyVerdict> verdicts) const;
  [[nodiscard]] std::vector<std::string> unmatched_keys() const;  // all of `keys` except tied keys
  // Returns the unmatched keys that would be an error without Unmatched::kSkip or Partial::kAllow:
  // weights, then adapters.
  [[nodiscard]] std::vector<std::string> skipped_keys() const;
};

// The arguments of save(). The simplest call:
//
//   const auto report =
//       save({.graph = "graph.onnx", .checkpoint = {"checkpoint.pt"}, .folder = "out"});
struct SaveRequest {
  // A file, a loaded model, or a model in memory (`.graph = &model`) that outlives the call and
  // whose external data is in options.source_dir.
  std::variant<std::filesystem::path, Model, const onnx::ModelProto*> graph = {};
  // Files, shard indexes or folders, which form one checkpoint. If empty, the weights that are
  // already in the graph are written in the given layout (relayout_models()).
  std::vector<std::filesystem::path> checkpoint = {};
  std::filesystem::path folder = {};  // created if it is missing
  std::string model_name = "model.onnx";
  std::string data_dir = "initializers";  // in `folder`; for Layout::kPerTensor
  SaveOptions options = {};
};

// Writes `folder`/`model_name`, complete and verified. After an error nothing is left behind. The
// functions below document the details; they also accept checkpoints in other forms and several
// graphs.
[[nodiscard]] Result<SaveReport> save(const SaveRequest& request);

// Attaches a checkpoint to one or more graphs. The resulting models share their data files: each
// byte is stored once, however many models use it. Each graph becomes a model under its own name in
// `target.folder`; `target.model_name` is not used. The data is in `target.data_dir` or, with one
// file or shards, in files next to the models; if there are several models, these files are named
// after `target.data_dir`. With one file per tensor, each file is named after its key, or
// "<model>.<slot>" if it has no key. `checkpoint` is already open, or in memory (checkpoint_of());
// only those members of options.open then apply that concern other files.
//
// The graphs are mapped together (map_graphs()). Every option applies to each graph, except that a
// slot, an input or an initializer that an option names needs to exist in only one graph. All data
// is verified once, then the models are put in place one after another, so each model is complete
// at any time. If the process is interrupted after the first model, the next save into the folder
// puts the other models in place, and verify_model() reports kMixedSet until then.
//
// After an error nothing is left behind. If verification finds a difference, the error is kMismatch
// and nothing is published. A dry run with an empty target.folder reads no folder. Fails with
// kInvalidArgument if no graph or no checkpoint is given (use relayout_models() for that), and with
// several graphs also for names that are equal or do not end with ".onnx", and for kInline,
// Unmatched::kKeep, learn_from and test_data, which are for one graph.
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(
    const SaveTarget& target, std::span<const std::filesystem::path> torch_load_paths,
    std::span<const GraphToSave> graphs, const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target,
                                                                Checkpoint checkpoint,
                                                                std::span<const GraphToSave> graphs,
                                                                const SaveOptions& options = {});

// Rewrites the existing weights of one or more models in another layout; several models get common
// data files. No slot is filled, so `open` applies only to test data, and it is an error
// (kInvalidArgument) to set `learn_from`, plan.dtype or any member of `mapping` except partial and
// inputs. ExistingData::kStay means kMove here. Equal weights of different models can only be
// recognized by their bytes, so with several models Dedup::kStorage means Dedup::kContent. There
// are two exceptions: kLink, where ranges of one file are recognized by their offsets, and
// checkpoints with bytes that are made on demand, which cannot be compared (provided_tensors.h).
// Errors: kNotFound, with a list, if weights have no data (names that nothing defines, initializers
// without data, inputs that have the names of weights), unless mapping.partial is kAllow; kNotFound
// also if there are no weights to move. If a model has a manifest, the copied bytes are checked
// against it. Otherwise as save_graphs_with_external_data().
[[nodiscard]] Result<SaveReport> relayout_models(const SaveTarget& target,
                                                 std::span<const GraphToSave> models,
                                                 const SaveOptions& options = {});

// These functions do the same for one graph, whose model is named `target.model_name`. The external
// data of a model in memory is in options.source_dir or where the model says; the external data of
// a model file is in the file's folder.
[[nodiscard]] Result<SaveReport> save_model_with_external_data(
    const std::filesystem::path& basepath, const std::string& model_location,
    const std::string& initializer_location,
    std::span<const std::filesystem::path> torch_load_paths, const onnx::ModelProto& onnx_model,
    const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> save_graph_with_external_data(
    const std::filesystem::path& basepath, const std::string& model_location,
    const std::string& initializer_location,
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> save_model_with_external_data(const SaveTarget& target,
                                                               Checkpoint checkpoint, Model model,
                                                               const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> relayout_model(const SaveTarget& target,
                                                const std::filesystem::path& model_path,
                                                const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> relayout_model(const SaveTarget& target,
                                                const onnx::ModelProto& model,
                                                const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> relayout_model(const SaveTarget& target, Model model,
                                                const SaveOptions& options = {});

// Returns the checkpoint with the tensors of `extra` added, such as buffers that no state dict has.
// An extra tensor fills the slots of its name in all models (by entries in options.mapping.map) and
// takes precedence over a key of the checkpoint with the same name. An extra tensor without a slot
// of its name is a key like any other. If `checkpoint` is null, the models' other initializers keep
// their data, which is moved as in relayout_models(). Errors as for join_checkpoints().
[[nodiscard]] Result<Checkpoint> with_extra(std::span<const Model> models,
                                            const Checkpoint* checkpoint, const Checkpoint& extra,
                                            SaveOptions& options);

// Decides where every byte of a save goes: chooses a free name for the data, assigns the tensors to
// files or links them, and, if `options` ask for it, finds tensors with equal bytes. It writes
// nothing, and reads tensors only to find equal bytes. `write`: the options of the write_plan()
// call that follows. If `target.folder` is empty, no folder is read, and the plan is that of a
// first save. The result does not depend on the number of threads.
//
// Errors: kAlreadyExists if the model or its data exists and may not be replaced; kInvalidArgument
// for names that are not plain file names, numbers out of range, more than kMaxShards shards,
// options that exclude each other, and, with kLink, a file that is outside the folder or has
// several names; kUnsupported for a tensor that ONNX cannot hold, for a model of more than 2^31-1
// bytes, for data of the model that expands too far, and for a tensor that is not a plain, aligned
// range of a file (with kLink); kMismatch for a type that differs from the slot's, and for a model
// that differs from its manifest; kNotFound, kCorrupt, kIo, kCancelled.
[[nodiscard]] Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const SaveTarget& target,
                                         const PlanOptions& options, const WriteOptions& write);

// Returns the text of a map file to be completed by hand, for a save that failed or left slots
// open: the pairs that the rules find, and the open slots with the keys that fit them
// (map_template()). `refusal` has the details of the save's error. Reads only metadata. Errors as
// for opening; kNotFound if no slot is open.
[[nodiscard]] Result<std::string> map_template_text(
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options,
    const ErrorDetails* refusal = nullptr);

}  // namespace onnx_external
