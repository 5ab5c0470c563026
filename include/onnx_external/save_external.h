// Saves a graph and a checkpoint as a model with external data. One call opens the checkpoint, maps
// its tensors to the graph, plans, writes, verifies and publishes. These steps can also be called
// one by one, as follows. The model becomes visible in `target.folder` only in the last step:
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
//   const auto expected = expected_tensors(*plan, *graph, *checkpoint,
//                                          staged->written().range_crcs);
//   auto report = verify_model_against(staged->model_path(), *checkpoint, expected);
//   if (report->ok()) {
//     auto published = staged->publish();
//   }
//
// (A real program checks each Result before it uses the value.)
//
// The functions have no shared state, and any number of them may run at the same time, even with
// the same model and checkpoint. A function returns after all threads that it started have ended. A
// save locks its output folder. If another save into this folder begins, in this process or
// another, the second save fails immediately with kBusy.
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

// With kDryRun, a save reports its plan and writes nothing. It reads tensors only if the plan
// depends on their bytes (Dedup::kContent).
enum class RunMode : std::uint8_t { kWrite, kDryRun };

// The options of each step, and the options of the save as a whole.
struct SaveOptions {
  OpenOptions open;        // the default of scratch_dir is replaced by the output folder
  MappingOptions mapping;  // `casts` counts as kAllow if plan.dtype is set
  PlanOptions plan;
  WriteOptions write;
  Verification verification = Verification::kOn;
  RunMode mode = RunMode::kWrite;

  // The old checkpoint, from which the graph was exported (learn.h). Data in the graph that equals
  // a tensor of the old checkpoint is replaced by the tensor of the same name in the new
  // checkpoint. If empty, learn_map() is not used.
  std::vector<std::filesystem::path> learn_from;
  // The old checkpoint, if it is already open or in memory; not owned. It takes precedence over
  // `learn_from`.
  const Checkpoint* learn_from_open = nullptr;

  // Files of recorded inputs. Each input set in them becomes a test_data_set_N folder next to the
  // model (test_data.h). They are read with the options in `open`, except for its key.
  std::vector<std::filesystem::path> test_data;

  // The folder with the graph's existing external data, to which locations in the graph are
  // relative. If empty, the folder of the graph file is used, or the current folder for a graph in
  // memory.
  std::filesystem::path source_dir;

  // Called in the thread that called the save, after the save is staged and verified and before it
  // is published. The function may add files that belong next to the model. If it returns an error,
  // the save fails and nothing is published. If the save fails later, the caller must undo what
  // this function did.
  std::function<Status()> before_publish;
};

// One tensor of the written model (in a dry run, of the model that would be written).
struct SavedTensor {
  std::string key;   // empty if the data came with the graph
  std::string slot;  // the name of the initializer or other tensor (ExternalTensor::name)
  std::optional<Rule> rule;
  Recipe recipe;     // the steps that were applied to the key
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
  std::string weight;        // name in the graph; several matrices may be parts of one weight
  std::string key;           // empty if the graph holds the weight
  std::string role;          // "linear", "head", "embedding"
  bool is_gathered = false;  // used by an embedding, and possibly also by a head
  Scheme scheme;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t bytes_before = 0;  // size in the graph's type
  std::uint64_t bytes = 0;         // size of codes, scales and zero points
  // The relative quantization error: the root mean square of the error, divided by the root mean
  // square of the values. A dry run computes it from a few rows. Nullopt for kept codes, which have
  // no error, and if another process or a killed save computed the codes.
  std::optional<double> error = {};
  // The reason why the codes of the checkpoint are not kept for this matrix. If they are kept, or
  // the checkpoint has no codes, the reason is "".
  std::string unkept = {};
};

// A float weight that is not quantized by a save with PlanOptions::quantize.
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
  // The names that no key fills: the names that left_names() returns, and values in nodes and
  // functions that have no data (kMissing). The functions below return subsets of these names.
  std::vector<LeftName> left;
  // The slots and Constant nodes that MappingOptions::keep names, in the order of the option.
  std::vector<std::string> kept_by_option;
  bool complete = true;    // true if slots_left() and left_old() are empty
  std::string key_prefix;  // Mapping::key_prefix
  // The total size of the ranges of data files that the model refers to, including ranges shared
  // with other models. With Layout::kInline, the size of the data in the model.
  std::uint64_t bytes = 0;
  // Irregularities in the external data of the given model. The written model has none of them:
  // prepacked weights of ONNX Runtime and basepath are left out, and all other data is written in
  // the regular form.
  std::vector<CountedRemark> remarks;
  // Set with PlanOptions::quantize, in the order of the graph.
  std::vector<SavedMatrix> quantized = {};
  std::vector<FloatWeight> floats = {};

  // Returns the names that have one of the verdicts, grouped by verdict in the given order, and in
  // the order of `left` within a group.
  [[nodiscard]] std::vector<std::string> names_with(
      std::initializer_list<SlotVerdict> verdicts) const;
  // Returns the inputs of the model; inputs that may be weights come last.
  [[nodiscard]] std::vector<std::string> inputs_left() const;
  [[nodiscard]] std::vector<std::string> initializers_kept() const;  // with their data in the graph
  // Returns the names of weights without data. If there are any, no runtime can open the model.
  [[nodiscard]] std::vector<std::string> slots_left() const;
  // Returns the names of weights that keep old values, because the checkpoint lacks them.
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
  // to learn_map() have the verdict kBaked. The functions below return subsets of these keys.
  std::vector<LeftKey> keys;
  std::vector<UnusedModule> unused_modules;  // modules in the checkpoint that no graph uses
  std::vector<std::string> notes;            // Checkpoint::notes()
  std::vector<OverlaidTensor> overlaid;      // tensors that a later checkpoint replaced
  bool complete = true;                      // all models are complete
  std::vector<DerivedTensor> derived;        // MappingOptions::derived
  std::vector<std::string> oversized;        // tensors above the shard limit, each in its own shard
  std::uint64_t bytes = 0;          // size of the data files; with Layout::kInline, of inline
                                    // data
  std::uint64_t bytes_resumed = 0;  // of these, written by the killed save that was resumed
  std::uint64_t linked_bytes = 0;   // with Layout::kLink: of the ranges that the models refer to
  // Data files of replaced models that were not removed, because another model in the folder refers
  // to them: pairs of a location and the name of one such model.
  std::vector<std::pair<std::string, std::string>> data_left_for;
  double seconds = 0;
  // True if all written bytes were read back and are equal to the checkpoint's bytes. With
  // Layout::kLink, true if every range was confirmed to be the range of its tensor in the
  // checkpoint. A verified model may lack weights (see `complete`).
  bool verified = false;
  TestData test_data;  // in a dry run, includes dimensions that a save would reject

  // Returns the keys that have one of the verdicts, grouped by verdict in the given order, and in
  // the order of `keys` within a group.
  [[nodiscard]] std::vector<std::string> keys_with(
      std::initializer_list<KeyVerdict> verdicts) const;
  [[nodiscard]] std::vector<std::string> unmatched_keys() const;  // all of `keys` except tied keys
  // Returns the unmatched keys that are an error unless Unmatched::kSkip or Partial::kAllow is set.
  // Keys of weights come before keys of adapters.
  [[nodiscard]] std::vector<std::string> skipped_keys() const;
};

// The arguments of save(). A call with the required arguments only:
//
//   const auto report =
//       save({.graph = "graph.onnx", .checkpoint = {"checkpoint.pt"}, .folder = "out"});
struct SaveRequest {
  // A file, a loaded model, or a model in memory (`.graph = &model`) that outlives the call and
  // whose external data is in options.source_dir.
  std::variant<std::filesystem::path, Model, const onnx::ModelProto*> graph = {};
  // Files, shard indexes or folders, which together are one checkpoint. If empty, the weights that
  // are already in the graph are written in the given layout (relayout_models()).
  std::vector<std::filesystem::path> checkpoint = {};
  std::filesystem::path folder = {};  // created if it is missing
  std::string model_name = "model.onnx";
  std::string data_dir = "initializers";  // in `folder`; for Layout::kPerTensor
  SaveOptions options = {};
};

// Writes `folder`/`model_name`, complete and verified. If it fails, it removes everything that it
// wrote. The functions below document the details. They also accept several graphs, and checkpoints
// in other forms.
[[nodiscard]] Result<SaveReport> save(const SaveRequest& request);

// Attaches a checkpoint to one or more graphs. The resulting models share their data files, so a
// tensor that several models use is stored once. Each graph becomes a model under its own name in
// `target.folder`; `target.model_name` is not used. The data is in `target.data_dir` or, with one
// file or shards, in files next to the models; if there are several models, these files are named
// after `target.data_dir`. With one file per tensor, each file is named after its key, or
// "<model>.<slot>" if it has no key. The overload with `checkpoint` takes a checkpoint that is
// already open or in memory (checkpoint_of()), so members of options.open apply only to other
// files.
//
// The graphs are mapped together (map_graphs()). Every option applies to each graph, except that a
// slot, an input or an initializer that an option names needs to exist in only one graph. All data
// is verified once. The models are then published one after another, so at any time each visible
// model is complete. If the process is interrupted after the first model, the next save into the
// folder publishes the other models, and until then verify_model() reports kMixedSet.
//
// If a save fails, it removes everything that it wrote. If verification finds a difference, the
// error is kMismatch and nothing is published. A dry run with an empty target.folder does not read
// the output folder. Fails with kInvalidArgument if no graph or no checkpoint is given (without a
// checkpoint, use relayout_models()). With several graphs, also fails with kInvalidArgument for
// names that are equal or do not end with ".onnx", and for kInline, Unmatched::kKeep, learn_from
// and test_data, which support only one graph.
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(
    const SaveTarget& target, std::span<const std::filesystem::path> torch_load_paths,
    std::span<const GraphToSave> graphs, const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target,
                                                                Checkpoint checkpoint,
                                                                std::span<const GraphToSave> graphs,
                                                                const SaveOptions& options = {});

// Writes the existing weights of one or more models in another layout. Several models get common
// data files. Because no slot is filled, `open` applies only to test data, and setting
// `learn_from`, plan.dtype or any member of `mapping` except partial and inputs is an error
// (kInvalidArgument). ExistingData::kStay is treated as kMove. With several models, Dedup::kStorage
// is treated as Dedup::kContent, because equal weights of different models can be recognized only
// by their bytes. There are two exceptions: with kLink, ranges of one file are recognized by their
// offsets, and bytes that are produced on demand (provided_tensors.h) cannot be compared. Fails
// with kNotFound, with a list, if weights have no data (names that nothing defines, initializers
// without data, inputs that have the names of weights), unless mapping.partial is kAllow. Also
// fails with kNotFound if there are no weights to move. If a model has a manifest, the copied bytes
// are checked against it. In all other respects this function works like
// save_graphs_with_external_data().
[[nodiscard]] Result<SaveReport> relayout_models(const SaveTarget& target,
                                                 std::span<const GraphToSave> models,
                                                 const SaveOptions& options = {});

// These functions save one graph, like save_graphs_with_external_data() and relayout_models() with
// a single graph. The model is named `model_location` or `target.model_name`. If options.source_dir
// is empty, the graph's existing external data is in the folder of the graph file, in
// Model::source_dir(), or, for a ModelProto, in the current folder.
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
// An extra tensor fills the slots with the same name in all models: entries for them are added to
// options.mapping.map. It takes precedence over a key of the checkpoint with the same name. If no
// slot has the name, the extra tensor is an ordinary key. If `checkpoint` is null, the models'
// other initializers keep their data, which is moved as in relayout_models(). Errors as for
// join_checkpoints().
[[nodiscard]] Result<Checkpoint> with_extra(std::span<const Model> models,
                                            const Checkpoint* checkpoint, const Checkpoint& extra,
                                            SaveOptions& options);

// Decides where every byte of a save goes: chooses a free name for the data, assigns the tensors to
// files or links them, and, if `options` ask for it, finds tensors with equal bytes. It writes
// nothing, and reads tensors only to find equal bytes. `write` are the options of the later call of
// write_plan(). If `target.folder` is empty, no folder is read, and the plan assumes that the
// output folder is empty. The result does not depend on the number of threads.
//
// Errors:
// - kAlreadyExists if the model or its data exists and may not be replaced.
// - kInvalidArgument for names that are not plain file names, numbers out of range, more than
//   kMaxShards shards, and options that cannot be combined. With kLink, this includes a file that
//   is outside the folder or has several names.
// - kUnsupported for a tensor that ONNX cannot hold, a model of more than 2^31-1 bytes, and data of
//   the model that exceeds PlanOptions::max_expand. With kLink, this includes a tensor that is not
//   a plain, aligned range of a file.
// - kMismatch if a tensor's type differs from the type of its slot, or if the model differs from
//   its manifest.
// - kNotFound, kCorrupt, kIo, kCancelled.
[[nodiscard]] Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const SaveTarget& target,
                                         const PlanOptions& options, const WriteOptions& write);

// Returns the text of a map file to be completed by hand, for a save that failed or left slots
// open: the pairs that the rules find, and the open slots with the keys that fit them
// (map_template()). `refusal` is the details of the error that the save returned. Only metadata is
// read. Errors are those of opening the files; also kNotFound if no slot is open.
[[nodiscard]] Result<std::string> map_template_text(
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options,
    const ErrorDetails* refusal = nullptr);

}  // namespace onnx_external
