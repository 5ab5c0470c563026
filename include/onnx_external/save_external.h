// The whole job in one call: open the checkpoint, map, plan, write, verify, publish. The steps can
// also be called one by one, in this order. Nothing is visible in `target.folder` before the last:
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
// The functions keep no state, and any number of them may run at once, also with the same model and
// checkpoint. They return when all threads that they started have ended. A save locks its folder:
// another one into it, of this process or another, fails at once with kBusy.
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

// The options of each step, and those that only the whole job has.
struct SaveOptions {
  OpenOptions open;        // with the default scratch_dir, the output folder is used instead
  MappingOptions mapping;  // if plan.dtype is set, casts are allowed
  PlanOptions plan;
  WriteOptions write;
  Verification verification = Verification::kOn;
  RunMode mode = RunMode::kWrite;

  // The checkpoint that the graph was exported from. Data that the graph holds is paired with its
  // tensors by their bytes (learn.h), and then filled from the new tensors of the same names. If
  // empty, nothing is learned.
  std::vector<std::filesystem::path> learn_from;
  // The same checkpoint, if it is already open or in memory; not owned. Used before `learn_from`.
  const Checkpoint* learn_from_open = nullptr;

  // Files of recorded inputs. Each set in them becomes a test_data_set_N folder beside the model
  // (test_data.h). They are read with the options in `open`, except for its key.
  std::vector<std::filesystem::path> test_data;

  // The folder that locations of the graph's existing external data are relative to. If empty, the
  // graph's own folder, or the current one for a graph from memory.
  std::filesystem::path source_dir;

  // Called in the working thread when all of the save is staged and verified, right before it is
  // put in place: files that belong beside the model can be put there then. An error ends the save,
  // and nothing is changed. The caller must undo its own changes if the save fails later.
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
  std::optional<PackedTensor> packed = {};  // it is a part of a quantized matrix
};

// A matrix of a graph that a save quantizes (PlanOptions::quantize).
struct SavedMatrix {
  std::string weight;        // the graph's name; several matrices may be parts of one weight
  std::string key;           // empty: the graph holds the weight
  std::string role;          // "linear", "head", "embedding"
  bool is_gathered = false;  // an embedding reads it, perhaps beside a head
  Scheme scheme;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t bytes_before = 0;  // in the graph's type
  std::uint64_t bytes = 0;         // of codes, scales and zero points
  // The root mean square of the quantization error, divided by that of the values. In a dry run, of
  // a few rows. Nullopt if it is not known: another process or a killed save made the codes. Kept
  // codes lose nothing and have none.
  std::optional<double> error = {};
  // The reason why the checkpoint's codes of it are not kept; "" if it has none, or they are kept.
  std::string unkept = {};
};

// A float weight of a graph that such a save leaves unchanged.
struct FloatWeight {
  std::string weight;
  std::string reason;  // "Conv reads it"
  std::uint64_t bytes = 0;
};

// One of the graphs of a save.
struct GraphToSave {
  std::string model_name;  // "encoder.onnx"; of several graphs, it must end with ".onnx"
  // A file, a loaded model, or one in memory that outlives the call.
  std::variant<std::filesystem::path, Model, const onnx::ModelProto*> graph;
};

// One of the models of a save.
struct SavedModel {
  std::filesystem::path model;
  std::string manifest;  // relative to the model's folder
  std::vector<SavedTensor> tensors;
  // The names that no key fills: left_names(), and in nodes and functions the values that have no
  // data (kMissing). The functions below list some of them.
  std::vector<LeftName> left;
  // The slots and Constant nodes that MappingOptions::keep names, in the order of the option.
  std::vector<std::string> kept_by_option;
  bool complete = true;    // every weight has its value: slots_left() and left_old() are empty
  std::string key_prefix;  // Mapping::key_prefix
  // The bytes of all ranges of data files that the model refers to, shared or not; with
  // Layout::kInline, of the data in the model.
  std::uint64_t bytes = 0;
  // Irregularities of the given model's external data. Prepacked weights of ONNX Runtime and
  // basepath are left out of the written model; the rest is written as usual.
  std::vector<CountedRemark> remarks;
  // With PlanOptions::quantize, in the order of the graph.
  std::vector<SavedMatrix> quantized = {};
  std::vector<FloatWeight> floats = {};

  // The names with the first verdict in their order, then those with the next ...
  [[nodiscard]] std::vector<std::string> names_with(
      std::initializer_list<SlotVerdict> verdicts) const;
  // The inputs of the caller, those that may be weights last.
  [[nodiscard]] std::vector<std::string> inputs_left() const;
  [[nodiscard]] std::vector<std::string> initializers_kept() const;  // that keep the graph's data
  // Returns the names that stay without data. No runtime opens such a model.
  [[nodiscard]] std::vector<std::string> slots_left() const;
  // Returns the names that keep old values, because the checkpoint lacks the weights.
  [[nodiscard]] std::vector<std::string> left_old() const;
};

// A key that no slot takes.
struct LeftKey {
  std::string name;
  KeyVerdict verdict = KeyVerdict::kUnused;
  bool in_unused_module = false;  // MappedKey::in_unused_module
  std::string tied_to = {};       // of a tied key: the used key
};

// The result of a save: its models, and the keys and data files that they share.
struct SaveReport {
  std::filesystem::path folder;
  std::vector<SavedModel> models;  // one for each graph, in order
  // The keys that no slot takes, in checkpoint order. Keys whose values the graph has, as a learned
  // map says, are kBaked. The functions below list some of them.
  std::vector<LeftKey> keys;
  std::vector<UnusedModule> unused_modules;  // modules of the checkpoint that no graph has
  std::vector<std::string> notes;            // Checkpoint::notes()
  std::vector<OverlaidTensor> overlaid;      // tensors that a later checkpoint replaced
  bool complete = true;                      // all models are
  std::vector<DerivedTensor> derived;        // MappingOptions::derived
  std::vector<std::string> oversized;  // tensors larger than a shard may be; each has its own shard
  std::uint64_t bytes = 0;             // of data files; with Layout::kInline, of data in the model
  std::uint64_t bytes_resumed = 0;     // of these, written by the killed save that was resumed
  std::uint64_t linked_bytes = 0;      // Layout::kLink: of the ranges that the models refer to
  // Data files of replaced models that stay because another model of the folder refers to them:
  // (location, name of such a model).
  std::vector<std::pair<std::string, std::string>> data_left_for;
  double seconds = 0;
  // Every byte that was written was read back and equals the checkpoint's; says nothing of what is
  // missing (`complete`). With Layout::kLink, every range is known to be the checkpoint's own.
  bool verified = false;
  TestData test_data;  // in a dry run, its dimensions include those that a save would refuse

  // The keys with the first verdict in their order, then those with the next ...
  [[nodiscard]] std::vector<std::string> keys_with(
      std::initializer_list<KeyVerdict> verdicts) const;
  [[nodiscard]] std::vector<std::string> unmatched_keys() const;  // all of `keys` but tied ones
  // Returns those of them that would be an error without Unmatched::kSkip or Partial::kAllow:
  // weights, then adapters.
  [[nodiscard]] std::vector<std::string> skipped_keys() const;
};

// The arguments of save(). The simplest call:
//
//   const auto report =
//       save({.graph = "graph.onnx", .checkpoint = {"checkpoint.pt"}, .folder = "out"});
struct SaveRequest {
  // A file, a loaded model, or one in memory (`.graph = &model`) that outlives the call and whose
  // external data is in options.source_dir.
  std::variant<std::filesystem::path, Model, const onnx::ModelProto*> graph = {};
  // Files, shard indexes or folders, which form one checkpoint. Empty: the weights that the graph
  // holds get the layout (relayout_models()).
  std::vector<std::filesystem::path> checkpoint = {};
  std::filesystem::path folder = {};  // created if it is missing
  std::string model_name = "model.onnx";
  std::string data_dir = "initializers";  // in `folder`; of Layout::kPerTensor
  SaveOptions options = {};
};

// Writes `folder`/`model_name`, complete and verified. After an error nothing is left behind. The
// functions below have the details, and take checkpoints in other forms and several graphs.
[[nodiscard]] Result<SaveReport> save(const SaveRequest& request);

// Attaches a checkpoint to graphs, whose models share their data files: each byte is stored once,
// however many of them use it. Each graph becomes a model of its name in `target.folder`, with its
// data in `target.data_dir` or, with one file or shards, in files beside it; `target.model_name` is
// not used. The data files of several models are called after the folder, and a data file of its
// own after its key, else "<model>.<slot>". `checkpoint`: already open, or in memory
// (checkpoint_of()). In that case only those members of `open` apply that concern other files.
//
// A key is judged by all graphs together (map_graphs()). Every option applies to each graph, except
// that a slot, an input or an initializer that an option names needs to be in one of them only. All
// data is verified once, then the models are put in place one after another: each is complete at
// any time. If that is cut off after the first, the next save into the folder puts the others in
// place, and verify_model() reports kMixedSet until then.
//
// After an error nothing is left behind. If verification finds a difference, the error is kMismatch
// and nothing is published. A dry run with an empty folder reads no folder. kInvalidArgument if no
// graph or no checkpoint is given (use relayout_models() for that), and with several graphs also
// for names that are equal or do not end with ".onnx", and for kInline, Unmatched::kKeep,
// learn_from and test_data, which are for one graph.
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(
    const SaveTarget& target, std::span<const std::filesystem::path> torch_load_paths,
    std::span<const GraphToSave> graphs, const SaveOptions& options = {});
[[nodiscard]] Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target,
                                                                Checkpoint checkpoint,
                                                                std::span<const GraphToSave> graphs,
                                                                const SaveOptions& options = {});

// Gives the weights of models another layout, a common one if there are several. No slot is filled,
// so `open` applies only to test data; `learn_from`, plan.dtype and `mapping`, except for its
// partial and inputs, are errors (kInvalidArgument). ExistingData::kStay means kMove here.
// Different models do not know each other's weights, so with several models Dedup::kStorage means
// Dedup::kContent, except for kLink (ranges of one file are found by their place), and where the
// bytes of some are made on demand, once (provided_tensors.h). kNotFound, with a list, if weights
// have no data (names that nothing defines, initializers without data, inputs that have the names
// of weights), unless mapping.partial is kAllow; kNotFound also if there are no weights to move. If
// a model has a manifest, the copied bytes are checked against it. Otherwise as
// save_graphs_with_external_data().
[[nodiscard]] Result<SaveReport> relayout_models(const SaveTarget& target,
                                                 std::span<const GraphToSave> models,
                                                 const SaveOptions& options = {});

// The same for one graph, whose model is called `target.model_name`. The data of a model in memory
// is in options.source_dir, or where the model says; the data of a file is in its folder.
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

// The checkpoint with tensors beside it, such as buffers that no state dict has. They fill the
// slots of their names in all models (entries of options.mapping.map), and go before keys of the
// checkpoint of the same name. Those without a slot of their name are keys like all others. If
// `checkpoint` is null, the models' other initializers keep their data, and it moves as in
// relayout_models(). Errors as for join_checkpoints().
[[nodiscard]] Result<Checkpoint> with_extra(std::span<const Model> models,
                                            const Checkpoint* checkpoint, const Checkpoint& extra,
                                            SaveOptions& options);

// Decides where every byte of a save goes: chooses a free name for the data, assigns the tensors to
// files or links them, and, if `options` ask for it, finds tensors of equal bytes. It writes
// nothing, and reads tensors only for the latter. `write`: the options of the write_plan() that
// follows. With an empty `target.folder` no folder is read; the plan is that of a first save. The
// result does not depend on the number of threads.
//
// kAlreadyExists if the model or its data exists and may not be replaced; kInvalidArgument for
// names that are not plain file names, numbers out of range, more than kMaxShards shards, options
// that exclude each other, and (kLink) a file that is outside the folder or has several names;
// kUnsupported for a tensor that ONNX cannot hold, for a model of more than 2^31-1 bytes, for data
// of the model that expands too far, for a tensor that is not a plain, aligned range of a file
// (kLink), and for a file system without locks (kEqualFiles); kMismatch for a type that differs
// from the slot's, and for a model that differs from its manifest; kNotFound, kCorrupt, kIo,
// kCancelled.
[[nodiscard]] Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const SaveTarget& target,
                                         const PlanOptions& options, const WriteOptions& write);

// The text of a map file to be completed, for a save that was refused or left slots open: the pairs
// that the rules find, and the open slots with the keys that fit them (map_template()). `refusal`:
// the details of the error. Reads only metadata. Errors as for opening; kNotFound if no slot is
// open.
[[nodiscard]] Result<std::string> map_template_text(
    std::span<const std::filesystem::path> torch_load_paths,
    const std::filesystem::path& graph_path, const SaveOptions& options,
    const ErrorDetails* refusal = nullptr);

}  // namespace onnx_external
