#include "onnx_external/save_external.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/name_map.h"
#include "base/new_folders.h"
#include "base/parallel.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/evidence.h"
#include "onnx_external/learn.h"
#include "save/given_bytes.h"
#include "save/planned_bytes.h"
#include "verify/recorded_bytes.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

std::vector<SavedTensor> saved_tensors(SavePlan plan) {
  std::vector<SavedTensor> saved;
  saved.reserve(plan.tensors.size());
  for (PlannedTensor& tensor : plan.tensors) {
    SavedTensor entry;
    entry.key = std::move(tensor.key);
    entry.slot = std::move(tensor.name);
    entry.rule = tensor.rule;
    entry.recipe = std::move(tensor.recipe);
    if (tensor.part && plan.layout != Layout::kInline) {
      const PlannedPart& part = plan.parts[*tensor.part];
      entry.file = plan.location(part.file);
      entry.offset = part.offset;
    }
    entry.length = tensor.nbytes;
    entry.data_type = tensor.data_type;
    entry.dims = std::move(tensor.dims);
    saved.push_back(std::move(entry));
  }
  return saved;
}

// Without the tensors, which take most of its memory.
SaveReport make_report(const fs::path& model_path, const SavePlan& plan, const MappingKeys& keys,
                       const Mapping& mapping, const Checkpoint& checkpoint) {
  SaveReport report;
  report.model = model_path;
  for (const std::uint32_t key : mapping.unmatched_keys) {
    report.unmatched_keys.push_back(keys.keys[key].name);
  }
  for (const std::uint32_t key : mapping.baked_keys) {
    report.baked_keys.push_back(keys.keys[key].name);
  }
  report.overlaid = checkpoint.overlaid();
  for (const TiedKey& tied : mapping.tied_keys) {
    report.tied_keys.emplace_back(keys.keys[tied.key].name, keys.keys[tied.matched_key].name);
  }
  report.unused_modules = mapping.unused_modules;
  report.inputs_left = mapping.inputs_left;
  report.initializers_kept = mapping.initializers_kept;
  report.slots_left = mapping.slots_left;
  for (const std::size_t tensor : plan.oversized) {
    report.oversized.push_back(plan.tensors[tensor].name);
  }
  report.alignment = mapping.alignment;
  report.bytes = plan.bytes;
  report.files_reused = plan.kept.size();
  for (const auto& [file, kept] : plan.kept) {
    report.bytes_reused += plan.files[file].bytes;
  }
  for (std::size_t i = 0; plan.layout == Layout::kLink && i < plan.parts.size(); ++i) {
    report.linked_bytes += plan.parts[i].bytes;
  }
  return report;
}

// What the read-back must find: every initializer that came from the checkpoint.
// `graph` is the graph before the tensors were attached: the plan's slots are its indices.
std::vector<ExpectedTensor> expected_by_plan(const SavePlan& plan, const GraphFacts& graph) {
  std::vector<ExpectedTensor> expected;
  expected.reserve(plan.tensors.size());
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.source == TensorSource::kCheckpoint) {
      const std::uint32_t home =
          tensor.slot == Attachment::kNoSlot ? 0 : graph.slots[tensor.slot].graph;
      expected.push_back({tensor.name, home, tensor.source_index, ExpectedBy::kMapping,
                          tensor.cast_to ? Casts::kAllow : Casts::kRefuse});
      expected.back().recipe = tensor.recipe;
    }
  }
  return expected;
}

// What was rearranged or converted need not be made a second time: the bytes on the disk must be
// those that were computed. `expected` is what expected_by_plan() made of the plan.
void add_written_crcs(const SavePlan& plan, const Checkpoint& checkpoint,
                      const std::vector<std::uint32_t>& part_crcs,
                      std::vector<ExpectedTensor>& expected) {
  auto place = expected.begin();
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.source != TensorSource::kCheckpoint || place == expected.end()) {
      continue;
    }
    if (tensor.part && plan.layout != Layout::kLink && !planned_range(checkpoint, tensor)) {
      place->written_crc = part_crcs[*tensor.part];
    }
    ++place;
  }
}

Error verification_failed(const VerifyReport& report) {
  std::string text =
      "verification failed, nothing was published: " + finding_text(report.findings.front());
  if (report.findings.size() > 1) {
    text += " (and " + std::to_string(report.findings.size() - 1) + " more findings)";
  }
  return Error{ErrorCode::kMismatch, std::move(text)};
}

struct Target {
  const fs::path& folder;
  const std::string& model_name;
  const std::string& data_dir;
  std::string graph_name;  // for messages
  fs::path graph_path;     // empty: from memory
};

// Without a checkpoint nothing is filled: what the graph leaves open stays open.
Mapping unmapped(const GraphFacts& graph) {
  Mapping mapping;
  for (const Slot& slot : graph.slots) {
    if (slot.kind == SlotKind::kGraphInput) {
      mapping.inputs_left.push_back(slot.name);
    } else if (slot.kind == SlotKind::kUndefinedName) {
      mapping.slots_left.push_back(slot.name);
    }
  }
  return mapping;
}

// A graph whose weights were left out, given without its checkpoint.
bool moves_nothing(const SavePlan& plan, const Model& model) {
  const auto& given = model.inline_tensors();
  const bool is_whole = plan.layout == Layout::kInline &&
                        std::any_of(given.begin(), given.end(), [](const InlineTensor& tensor) {
                          return tensor.place != TensorPlace::kAttribute;
                        });
  return plan.tensors.empty() && !is_whole;
}

Status verify_staged(const StagedSave& staged, const SavePlan& plan, const Checkpoint& checkpoint,
                     const std::vector<ExpectedTensor>& expected, const Target& target,
                     const SaveOptions& save) {
  const WriteOptions& write = save.write;
  VerifyOptions options;
  options.threads = write.threads;
  options.progress = write.progress;
  // A spliced record took its CRC from the checkpoint's directory: this read proves it.
  options.compare = Compare::kRecordedCrc;
  options.open_slots = OpenSlots::kAllow;  // the mapping has decided
  if (save.layout == Layout::kLink) {
    options.compare = Compare::kPlaces;
    options.data_folder = target.folder.empty() ? fs::path(".") : target.folder;
  }
  // Pages that were not synced are dirty: the kernel cannot drop them.
  options.drop_cache = write.sync == Sync::kFiles ? DropCache::kYes : DropCache::kNo;
  if (write.cache == PageCache::kBypass) {
    options.drop_cache = DropCache::kBehind;
  }
  // What was kept is proved: the same comparison decided it.
  for (const auto& [file, kept] : plan.kept) {
    options.compared_files.insert(kept.location);
  }
  // What the graph already had is proved by the CRC-32 that was taken while it was copied.
  options.manifest = staged.manifest_location();
  auto report = verify_model_against(staged.model_path(), checkpoint, expected, options);
  if (!report) {
    return fail(std::move(report).error());
  }
  return report->ok() ? Status{} : Status(fail(verification_failed(*report)));
}

using LoadModel = std::function<Result<Model>()>;

// The model may replace an old model, never the checkpoint that is being read.
Status check_target(const Target& target, const Checkpoint& checkpoint) {
  const fs::path old = target.folder / target.model_name;
  std::error_code ignored;
  for (const auto& file : checkpoint.files()) {
    if (fs::equivalent(old, file->path(), ignored)) {  // opens nothing: it may be a device
      return fail(ErrorCode::kInvalidArgument,
                  old.string() + ": is the checkpoint; give the model another name or folder");
    }
  }
  return {};
}

// A dry run without a folder asks what would fill what, not what stands in the way.
Result<std::string> data_dir_of(const Target& target, const SaveOptions& options) {
  if (options.mode == RunMode::kDryRun && target.folder.empty()) {
    return target.data_dir;
  }
  return choose_data_dir(target.folder, target.model_name, target.data_dir, options.write.overwrite,
                         options.layout);
}

OpenOptions open_options(const Target& target, const SaveOptions& options) {
  OpenOptions open = options.open;
  open.threads = options.write.threads;
  if (open.scratch_dir == OpenOptions{}.scratch_dir) {
    // Beside the output, because /tmp may be small or memory.
    open.scratch_dir = nearest_existing_folder(target.folder);
  }
  return open;
}

// The recorded inputs, fitted to the inputs of the graph that are left to the caller. A dry run
// reports the dimensions that do not fit; a save refuses them.
Result<RecordedInputs> read_test_data(const Model& model, const Mapping& mapping,
                                      const Target& target, const SaveOptions& options) {
  RecordedInputs inputs;
  for (const fs::path& path : options.test_data) {
    auto recording = open_recording(path, open_options(target, options));
    if (!recording) {
      return fail(std::move(recording).error());
    }
    inputs.recordings.push_back(*std::move(recording));
  }
  const auto graph = graph_inputs(model.proto().graph(), mapping.inputs_left);
  auto data = plan_test_data(graph, inputs.recordings);
  if (!data) {
    return fail_in(target.graph_name + ": test data", std::move(data).error());
  }
  inputs.data = *std::move(data);
  if (options.mode == RunMode::kWrite) {
    if (auto status = check_test_data(graph, inputs.data); !status) {
      return fail_in(target.graph_name + ": test data", std::move(status).error());
    }
  }
  return inputs;
}

// The two inputs do not know each other, so they are opened at the same time.
struct Inputs {
  Result<Model> model = fail(ErrorCode::kIo, "not loaded");
  Result<Checkpoint> checkpoint = fail(ErrorCode::kIo, "not opened");
};

Result<Checkpoint> empty_checkpoint() {
  return Checkpoint(std::make_unique<Checkpoint::Contents>(std::filesystem::path()));
}

Inputs open_inputs(const LoadModel& load_model, const Target& target,
                   std::span<const fs::path> paths, const SaveOptions& options) {
  const OpenOptions open = open_options(target, options);
  Inputs inputs;
  // The checkpoint here: mapping and planning go on in the memory that its pickle leaves.
  Status opened = parallel_both(
      thread_count(options.write.threads),
      [&]() -> Status {
        inputs.checkpoint = paths.empty() ? empty_checkpoint() : open_checkpoint(paths, open);
        return {};
      },
      [&]() -> Status {
        inputs.model = load_model();
        return {};
      });
  if (!opened) {
    inputs.model = fail(std::move(opened).error());
  }
  return inputs;
}

// Beside the list the memory of the inputs is given back, which takes as long.
Status list_tensors(SavePlan plan, Inputs& inputs, const SaveOptions& options, SaveReport& report) {
  return parallel_both(
      thread_count(options.write.threads),
      [&]() -> Status {
        report.tensors = saved_tensors(std::move(plan));
        return {};
      },
      [&]() -> Status {
        inputs = {};
        return {};
      });
}

// With a type for all floats the keys have no types that could disagree; make_plan refuses the
// slots that state another one.
MappingOptions mapping_options(const SaveOptions& options) {
  MappingOptions mapping = options.mapping;
  mapping.casts = options.dtype ? Casts::kAllow : mapping.casts;
  return mapping;
}

// The old checkpoint may be the same mapping in a file of another form.
Result<Checkpoint> open_old(const Target& target, const SaveOptions& options) {
  OpenOptions open = open_options(target, options);
  auto old = open_checkpoint(options.learn_from, open);
  if (!old && old.error().code == ErrorCode::kNotFound && !open.key.empty()) {
    open.key.clear();
    old = open_checkpoint(options.learn_from, open);
  }
  return old;
}

// What --learn-map found in the graph's data as it stands needs no slot.
void add_settled(const MappingKeys& keys, std::span<const std::string> settled, Mapping& mapping) {
  const NameSet names(settled.begin(), settled.end());
  for (const std::uint32_t key : mapping.unmatched_keys) {
    if (names.contains(keys.keys[key].name)) {
      mapping.baked_keys.push_back(key);
    }
  }
  std::vector<std::uint32_t>& baked = mapping.baked_keys;
  std::sort(baked.begin(), baked.end());
  baked.erase(std::unique(baked.begin(), baked.end()), baked.end());
}

Result<Mapping> map_save(const Model& model, const Checkpoint& checkpoint, const MappingKeys& keys,
                         const Target& target, const SaveOptions& options) {
  const MappingOptions given = mapping_options(options);
  const MappingEvidence evidence = mapping_evidence(model, checkpoint);
  if (options.learn_from.empty()) {
    return map_tensors(model.facts(), keys, given, evidence);
  }
  auto old = open_old(target, options);
  auto learned =
      old ? learn_map(model, *old, checkpoint, given, options.write.threads, options.write.progress)
          : Result<LearnedMap>(fail(std::move(old).error()));
  if (!learned) {
    return fail(std::move(learned).error());
  }
  auto mapping = map_tensors(model.facts(), keys, with_learned(given, *learned), evidence);
  if (mapping) {
    add_settled(keys, learned->settled, *mapping);
  }
  return mapping;
}

Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const Target& target, PlanOptions plan_options,
                           const SaveOptions& options) {
  plan_options.layout = options.layout;
  plan_options.max_shard_bytes = options.max_shard_bytes;
  plan_options.alignment = options.alignment;
  plan_options.dedup = options.dedup;
  plan_options.inline_below = options.inline_below;
  plan_options.casts = options.mapping.casts;
  plan_options.dtype = options.dtype;
  auto plan = make_plan(model, checkpoint, mapping, plan_options);
  if (plan) {
    if (Status status = check_given_bytes(*plan, model, options.open.max_expand); !status) {
      return fail(std::move(status).error());
    }
  }
  if (plan && options.layout == Layout::kLink) {
    plan = link_files(*std::move(plan), model, checkpoint, target.folder);
  }
  if (plan && options.dedup == Dedup::kContent) {
    plan = merge_equal_bytes(*std::move(plan), model, checkpoint, plan_options,
                             options.write.threads, options.write.progress);
  }
  if (!plan || options.reuse == Reuse::kNo || options.write.overwrite == Overwrite::kRefuse) {
    return plan;
  }
  WriteOptions write = options.write;
  if (options.mode == RunMode::kDryRun) {
    write.sync = Sync::kNone;
  }
  return keep_equal_files(*std::move(plan), model, checkpoint, target.folder, write);
}

Result<SaveReport> save(const LoadModel& load_model, const Target& target,
                        std::span<const fs::path> paths, const SaveOptions& options) {
  const auto start = std::chrono::steady_clock::now();

  // What is to be done: decided here, without writing anything.
  auto data_dir = data_dir_of(target, options);
  if (!data_dir) {
    return fail(std::move(data_dir).error());
  }
  Inputs opened = open_inputs(load_model, target, paths, options);
  Result<Model>& loaded = opened.model;
  Result<Checkpoint>& checkpoint = opened.checkpoint;
  if (!loaded) {
    return fail(std::move(loaded).error());
  }
  Model& model = *loaded;
  if (!checkpoint) {
    return fail(std::move(checkpoint).error());
  }
  if (Status own = check_target(target, *checkpoint); !own) {
    return fail(std::move(own).error());
  }
  auto keys = mapping_keys(*checkpoint);
  if (!keys) {
    return fail(std::move(keys).error());
  }
  auto mapping = paths.empty() ? unmapped(model.facts())
                               : map_save(model, *checkpoint, *keys, target, options);
  if (!mapping) {
    return fail_in(target.graph_name, std::move(mapping).error());
  }
  PlanOptions plan_options{target.model_name, *data_dir};
  if (paths.empty()) {
    plan_options.given =
        options.attributes ? GivenTensors::kMoveAndAttributes : GivenTensors::kMove;
  }
  auto plan = plan_save(model, *checkpoint, *mapping, target, std::move(plan_options), options);
  if (!plan) {
    return fail(std::move(plan).error());
  }
  if (paths.empty() && moves_nothing(*plan, model)) {
    return fail(ErrorCode::kNotFound,
                target.graph_name + ": has no weights to move, and no checkpoint is given");
  }
  if (Status noted = note_recorded_crcs(model, target.graph_path, *plan); !noted) {
    return fail(std::move(noted).error());
  }
  SaveReport report =
      make_report(target.folder / target.model_name, *plan, *keys, *mapping, *checkpoint);
  auto inputs = read_test_data(model, *mapping, target, options);
  if (!inputs) {
    return fail(std::move(inputs).error());
  }
  report.test_data = inputs->data;
  if (options.mode == RunMode::kDryRun) {
    report.tensors = saved_tensors(*std::move(plan));
    return report;
  }

  // What only the planning needed makes room.
  keys = fail(ErrorCode::kIo, "released");
  mapping = fail(ErrorCode::kIo, "released");

  // From here on every file, offset and length is final.
  const bool leads = options.write.team == nullptr || options.write.team->rank() == 0;
  const bool verifies = options.verification == Verification::kOn && leads;
  std::vector<ExpectedTensor> expected =
      verifies ? expected_by_plan(*plan, model.facts()) : std::vector<ExpectedTensor>();
  auto staged = write_plan(*plan, model, *checkpoint, target.folder, options.write, &*inputs);
  if (!staged) {
    return fail(std::move(staged).error());
  }
  report.bytes_kept = staged->bytes_kept();
  if (verifies) {
    add_written_crcs(*plan, *checkpoint, staged->part_crcs(), expected);
    // This loads the model that was written: the given one makes room for it.
    loaded = fail(ErrorCode::kIo, "released");
    Status verified = verify_staged(*staged, *plan, *checkpoint, expected, target, options);
    if (!verified) {
      return fail(std::move(verified).error());
    }
    report.verified = true;
  }
  if (Status listed = list_tensors(*std::move(plan), opened, options, report); !listed) {
    return fail(std::move(listed).error());
  }
  Status published = staged->publish();
  if (!published) {
    return fail(std::move(published).error());
  }
  report.data_left_for = staged->data_left_for();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

Result<SaveReport> save_model_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const onnx::ModelProto& onnx_model,
                                                 const SaveOptions& options) {
  const auto given = [&] {
    return Model::from_proto(onnx_model,
                             options.source_dir.empty() ? fs::path(".") : options.source_dir);
  };
  return save(given, {basepath, model_location, initializer_location, "the given graph", {}},
              torch_load_paths, options);
}

Result<SaveReport> save_graph_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const fs::path& graph_path,
                                                 const SaveOptions& options) {
  const auto from_file = [&] {
    auto model = Model::load(graph_path);
    if (model && !options.source_dir.empty()) {
      model->set_source_dir(options.source_dir);
    }
    return model;
  };
  return save(from_file,
              {basepath, model_location, initializer_location, graph_path.string(), graph_path},
              torch_load_paths, options);
}

Result<std::string> map_template_text(std::span<const fs::path> torch_load_paths,
                                      const fs::path& graph_path, const SaveOptions& options,
                                      const ErrorDetails* refusal) {
  auto model = Model::load(graph_path);
  if (!model) {
    return fail(std::move(model).error());
  }
  OpenOptions open = options.open;
  open.threads = options.write.threads;
  auto checkpoint = open_checkpoint(torch_load_paths, open);
  if (!checkpoint) {
    return fail(std::move(checkpoint).error());
  }
  auto keys = mapping_keys(*checkpoint);
  if (!keys) {
    return fail(std::move(keys).error());
  }
  const MapTemplate found = map_template(model->facts(), *keys, mapping_options(options), refusal);
  if (found.open.empty()) {
    return fail(ErrorCode::kNotFound, graph_path.string() + ": has no open slots");
  }
  return map_file_text(found.map, found.open);
}

}  // namespace onnx_external
