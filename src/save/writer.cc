#include "onnx_external/writer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/model_access.h"
#include "save/journal.h"
#include "save/known_bytes.h"
#include "save/manifest.h"
#include "save/model_builder.h"
#include "save/model_writer.h"
#include "save/overflows.h"
#include "save/plan_copier.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/resume.h"
#include "save/sparse_files.h"
#include "save/teamwork.h"

namespace onnx_external {

namespace {

std::vector<std::string> names_of(const SavePlan& plan) {
  std::vector<std::string> names;
  for (const PlannedModel& model : plan.models) {
    names.push_back(model.name);
  }
  return names;
}

}  // namespace

struct StagedSave::State {
  std::filesystem::path staging;
  std::vector<std::string> models;
  std::optional<Transaction> transaction;  // the leader's
  std::vector<std::uint32_t> crcs;
  std::map<std::size_t, std::uint32_t> inline_crcs;
  std::map<std::size_t, Overflow> overflows;
  std::uint64_t bytes_resumed = 0;
  Teamwork team;
  bool ended = false;

  State(std::filesystem::path folder, const SavePlan& plan, Team* members)
      : staging(std::move(folder)), team(members) {
    models = names_of(plan);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!ended && !team.is_alone()) {  // one that is alone must end without memory, too
      (void)end(fail(ErrorCode::kIo, "the first process of the team has given up"));
    }
  }

  // How it ended for the leader is how it ends for all.
  Status end(Status mine) {
    ended = true;
    return team.broadcast(std::move(mine));
  }
};

struct StagedSaveAccess {
  using State = StagedSave::State;
  static StagedSave make(std::unique_ptr<State> state) { return StagedSave(std::move(state)); }
};

StagedSave::StagedSave(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedSave::StagedSave(StagedSave&&) noexcept = default;
StagedSave& StagedSave::operator=(StagedSave&&) noexcept = default;
StagedSave::~StagedSave() = default;

const std::filesystem::path& StagedSave::directory() const {
  return state_->staging;
}

std::filesystem::path StagedSave::model_path(std::size_t member) const {
  return directory() / state_->models[member];
}

std::string StagedSave::manifest_location(std::size_t member) const {
  if (!state_->transaction) {
    return {};
  }
  return onnx_external::manifest_location(state_->transaction->options(), state_->models[member]);
}

std::vector<std::pair<std::string, std::string>> StagedSave::data_left_for() const {
  return state_->transaction ? state_->transaction->data_left_for()
                             : std::vector<std::pair<std::string, std::string>>();
}

const std::vector<std::uint32_t>& StagedSave::part_crcs() const {
  return state_->crcs;
}

const std::map<std::size_t, Overflow>& StagedSave::overflows() const {
  return state_->overflows;
}

const std::map<std::size_t, std::uint32_t>& StagedSave::inline_crcs() const {
  return state_->inline_crcs;
}

std::uint64_t StagedSave::bytes_resumed() const {
  return state_->bytes_resumed;
}

Status StagedSave::publish() {
  return state_->end(state_->transaction ? state_->transaction->publish() : Status());
}

namespace {

// A record that was only partly copied was not seen whole, so its CRC is checked here. `threads` as
// in WriteOptions.
Status check_partly_used_storages(const SavePlan& plan, const Checkpoint& checkpoint, int threads) {
  enum Use : std::uint8_t { kUnused, kPartly, kWhole };
  std::vector<Use> uses(checkpoint.storages().size(), kUnused);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.source != TensorSource::kCheckpoint || tensor.nbytes == 0) {
      continue;
    }
    if (tensor.part && plan.layout == Layout::kLink) {
      continue;  // nothing of it was copied
    }
    const std::uint32_t storage = checkpoint.tensors()[tensor.source_index].storage;
    const bool whole = tensor.part && planned_range(checkpoint, tensor) &&
                       tensor.nbytes == checkpoint.storages()[storage].bytes;
    uses[storage] = std::max(uses[storage], whole ? kWhole : kPartly);
  }
  std::vector<std::uint32_t> partly_used;
  std::uint64_t bytes = 0;
  for (std::uint32_t storage = 0; storage < uses.size(); ++storage) {
    if (uses[storage] == kPartly) {
      partly_used.push_back(storage);
      bytes += checkpoint.storages()[storage].bytes;
    }
  }
  return parallel_for(
      partly_used.size(), thread_count(threads, bytes),
      [&](std::size_t index, int) { return checkpoint.check_storage(partly_used[index]); });
}

// The parts that a killed save of this job wrote, as far as they are sound.
Result<WrittenParts> resumed_parts(const SavePlan& plan, const Transaction& transaction,
                                   std::string_view job, const WriteOptions& options,
                                   ProgressMeter& meter) {
  WrittenParts none(plan.parts.size());
  if (!transaction.is_taken_over()) {
    return none;
  }
  auto claimed = read_journal(transaction.staging(), job, plan.parts.size());
  return resume_parts(plan, transaction.data(), std::move(claimed).value_or(std::move(none)),
                      options, meter);
}

// The plan of a kInline save with the places that the parts have in the model file.
SavePlan placed_in(const ModelPieces& pieces, SavePlan plan) {
  const std::vector<std::uint64_t> offsets = deferred_offsets(pieces);
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    plan.parts[i].offset = offsets[i];
  }
  if (!plan.files.empty()) {
    plan.files[0].bytes = pieces.bytes;
  }
  return plan;
}

// What is written beside the model.
struct DataPlan {
  std::optional<SavePlan> own;       // nothing: the given plan
  std::optional<ModelPieces> model;  // kInline: the model is the data file, so its form comes first
};

Result<DataPlan> plan_data(const SavePlan& plan, std::vector<ModelBuilder>& builders,
                           const WriteOptions& options) {
  DataPlan data;
  if (plan.layout == Layout::kInline) {  // never of a set
    TRY_ASSIGN(data.model, builders.front().build(options.inputs, {}));
    data.own = placed_in(*data.model, plan);
  } else if (plan.layout == Layout::kLink) {
    if (options.checksum != Checksum::kNone) {
      return fail(ErrorCode::kInvalidArgument,
                  "a checksum of whole files means reading them; leave it out with layout link");
    }
    data.own.emplace();
    data.own->models = plan.models;
    data.own->data_dir = plan.data_dir;
    data.own->layout = plan.layout;
  }
  return data;
}

// Each process would have other bytes in its memory.
Status check_team(const SavePlan& plan, const Checkpoint& checkpoint, const Teamwork& team) {
  if (team.is_alone()) {
    return {};
  }
  for (const PlannedTensor& tensor : plan.tensors) {
    if (kind_of_source(checkpoint, tensor) != StorageKind::kFile) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor " + quote(tensor.name) +
                      " is in memory, and only files can be written by several processes; save it "
                      "in one process");
    }
  }
  return {};
}

std::vector<ModelBuilder> builders_for(const SavePlan& plan, const SourceModels& models,
                                       const Checkpoint& checkpoint) {
  std::vector<ModelBuilder> builders;
  for (const Model& model : models.all()) {
    builders.emplace_back(plan, model, checkpoint, static_cast<std::uint32_t>(builders.size()));
  }
  return builders;
}

// Writes the models, then their manifests, which name all of them.
Status write_models(std::vector<ModelBuilder>& builders, std::optional<ModelPieces> inline_model,
                    const CopiedFiles& copied, const std::map<std::size_t, Overflow>& overflows,
                    const WriteOptions& options, Transaction& transaction) {
  std::vector<ModelIdentity> written;
  for (ModelBuilder& builder : builders) {
    std::optional<ModelPieces> pieces = std::exchange(inline_model, std::nullopt);
    if (!pieces) {
      TRY_ASSIGN(pieces, builder.build(options.inputs, copied.sha1s));
    }
    TRY_ASSIGN(const auto identity,
               write_model_file({transaction.staging(), builder.name(), *pieces,
                                 ModelAccess::cuts(builder.model()), copied.crcs, options}));
    written.push_back(identity);
  }
  if (builders.size() == 1) {
    return transaction.write_manifest(
        builders.front().manifest_for(written, copied.crcs, overflows));
  }
  std::vector<std::string> manifests;
  for (const ModelBuilder& builder : builders) {
    manifests.push_back(builder.manifest_for(written, copied.crcs, overflows));
  }
  return transaction.write_manifests(manifests);
}

// What the leader makes before anything is copied.
struct PreparedOutput {
  Transaction transaction;
  WrittenParts resumed;
  std::optional<Journal> journal;
  std::vector<bool> sparse;  // CopyJob::sparse
};

// Files into which several processes write exist before the first of them does.
Status make_shared_files(const SavePlan& plan, const Teamwork& team, const Directory& data) {
  for (const std::uint32_t number : team.shared_files(plan)) {
    TRY_ASSIGN(auto file, create_file(data, plan.files[number].name, plan.files[number].bytes));
    TRY(file.close());
  }
  return {};
}

Result<PreparedOutput> prepare_output(const SavePlan& plan, const Checkpoint& checkpoint,
                                      const std::filesystem::path& out_dir, const std::string& job,
                                      const WriteOptions& options, const Teamwork& team,
                                      ProgressMeter& meter) {
  // The journal knows what one process has written.
  const bool resumes = options.resume == Resume::kYes && team.is_alone();
  SparseFiles sparse = team.is_alone() ? find_sparse_files(plan, checkpoint) : SparseFiles();
  TRY_ASSIGN(auto transaction,
             Transaction::begin(
                 out_dir, {plan.is_of_one() ? plan.models.front().name : std::string(),
                           plan.data_dir, options.sync, options.overwrite, plan.layout, plan.files,
                           sparse.hole_bytes, resumes ? job : std::string(), plan.data_name,
                           plan.is_of_one() ? std::vector<std::string>() : names_of(plan)}));
  PreparedOutput output{std::move(transaction), WrittenParts(plan.parts.size()), std::nullopt,
                        std::move(sparse.files)};
  if (!team.is_alone()) {
    TRY(make_shared_files(plan, team, output.transaction.data()));
    return output;
  }
  TRY_ASSIGN(output.resumed, resumed_parts(plan, output.transaction, job, options, meter));
  TRY_ASSIGN(output.journal, Journal::start(output.transaction.staging(), job, output.resumed));
  return output;
}

// SHA-1s of files in which several processes wrote; those of the others are known.
Status add_shared_checksums(const SavePlan& plan, const Teamwork& team, const Directory& data,
                            const WriteOptions& options, CopiedFiles& copied) {
  if (options.checksum == Checksum::kNone) {
    return {};
  }
  for (const std::uint32_t number : team.shared_files(plan)) {
    TRY_ASSIGN(copied.sha1s[number], data_file_sha1(data, plan.files[number]));
  }
  return {};
}

// A process that follows: copies its share into the folder that the leader has made.
Result<StagedSave> follow(const SavePlan& plan, const SourceModels& models,
                          const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                          const WriteOptions& options, Teamwork& team) {
  TRY_ASSIGN(const auto name, team.broadcast(Result<std::string>(std::string())));
  const std::filesystem::path staging = out_dir / name;
  const auto data =
      Directory::open(plan.layout == Layout::kPerTensor ? staging / plan.data_dir : staging);
  const WrittenParts none(plan.parts.size());
  ProgressMeter meter(options.progress);
  TRY_ASSIGN(auto copied,
             team.join(plan, data ? copy_files({plan, models, checkpoint, *data, options, none,
                                                nullptr, team.parts_of_others(plan)},
                                               meter)
                                  : Result<CopiedFiles>(fail(data.error()))));
  auto state = std::make_unique<StagedSaveAccess::State>(staging, plan, options.team);
  state->crcs = std::move(copied.crcs);
  return StagedSaveAccess::make(std::move(state));
}

Result<StagedSave> stage(const SavePlan& given_plan, const SourceModels& models,
                         const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                         const WriteOptions& options) {
  std::vector<ModelBuilder> builders = builders_for(given_plan, models, checkpoint);
  TRY_ASSIGN(auto data, plan_data(given_plan, builders, options));
  const SavePlan& plan = data.own ? *data.own : given_plan;
  Teamwork team(options.team);
  TRY(check_team(given_plan, checkpoint, team));
  TRY_ASSIGN(const auto job, name_job(plan, models, checkpoint));
  TRY(team.agree(job));
  if (!team.leads()) {
    return follow(plan, models, checkpoint, out_dir, options, team);
  }
  ProgressMeter meter(options.progress);
  auto output = prepare_output(plan, checkpoint, out_dir, job, options, team, meter);
  using Text = Result<std::string>;
  TRY(team.broadcast(output ? Text(output->transaction.staging_path().filename())
                            : Text(fail(output.error()))));
  Transaction& transaction = output->transaction;
  Journal* const journal = output->journal ? &*output->journal : nullptr;
  TRY_ASSIGN(auto copied, team.join(plan, copy_files({plan, models, checkpoint, transaction.data(),
                                                      options, output->resumed, journal,
                                                      team.parts_of_others(plan), output->sparse},
                                                     meter)));
  // From here on the others wait for the end, which is the state's to tell.
  auto state =
      std::make_unique<StagedSaveAccess::State>(transaction.staging_path(), plan, options.team);
  TRY(check_known_crcs(plan, models, copied.crcs));
  TRY(add_shared_checksums(plan, team, transaction.data(), options, copied));
  TRY(check_partly_used_storages(given_plan, checkpoint, options.threads));
  TRY_ASSIGN(state->overflows, find_overflows(given_plan, checkpoint, copied.infinite));
  TRY(write_models(builders, std::move(data.model), copied, state->overflows, options,
                   transaction));
  // From here on the sources are no longer needed.
  TRY(checkpoint.check_unchanged());
  state->crcs = std::move(copied.crcs);
  for (const ModelBuilder& builder : builders) {
    state->inline_crcs.insert(builder.inline_crcs().begin(), builder.inline_crcs().end());
  }
  state->bytes_resumed = bytes_of(plan, output->resumed);
  state->transaction.emplace(std::move(transaction));
  return StagedSaveAccess::make(std::move(state));
}

}  // namespace

Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                              const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                              const WriteOptions& options) {
  return stage(plan, models, checkpoint, out_dir, options);
}

}  // namespace onnx_external
