#include "onnx_external/writer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/model_access.h"
#include "save/manifest.h"
#include "save/model_builder.h"
#include "save/overflows.h"
#include "save/plan_copier.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/teamwork.h"
#include "save/written_ranges.h"

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
  std::unique_ptr<Transaction> transaction;  // the leader's
  std::vector<ModelIdentity> identities;     // of the staged models
  WrittenSave written;
  KeptData kept;

  State(std::filesystem::path folder, const SavePlan& plan)
      : staging(std::move(folder)), models(names_of(plan)) {}
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

std::filesystem::path StagedSave::model_path(std::size_t model_index) const {
  return directory() / state_->models[model_index];
}

std::string StagedSave::manifest_location(std::size_t model_index) const {
  if (!state_->transaction) {
    return {};
  }
  return onnx_external::manifest_location(state_->transaction->options(),
                                          state_->models[model_index]);
}

const WrittenSave& StagedSave::written() const {
  return state_->written;
}

const KeptData& StagedSave::kept_data() const {
  return state_->kept;
}

Status StagedSave::publish() {
  if (state_->transaction) {
    TRY_ASSIGN(state_->kept, onnx_external::publish(*state_->transaction, state_->identities));
  }
  return {};
}

namespace {

// Checks the CRCs of records that were copied only in part, because they were not read completely.
// `threads` is as in WriteOptions.
Status check_partly_used_storages(const SavePlan& plan, const Checkpoint& checkpoint, int threads) {
  enum Use : std::uint8_t { kUnused, kPartly, kWhole };
  std::vector<Use> uses(checkpoint.storages().size(), kUnused);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.source != TensorSource::kCheckpoint || tensor.nbytes == 0) {
      continue;
    }
    if (tensor.range && plan.is_linked(*tensor.range)) {
      continue;  // nothing of it was copied
    }
    const std::uint32_t storage = checkpoint.tensors()[tensor.source_index].storage;
    const bool whole = tensor.range && planned_range(checkpoint, tensor) &&
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

// Returns the ranges that a killed save of this job wrote, as far as their bytes are correct.
Result<WrittenRanges> resumed_ranges(const SavePlan& plan, Transaction& transaction,
                                     const WriteOptions& options, ProgressMeter& meter) {
  if (!transaction.is_taken_over()) {
    return WrittenRanges(plan.ranges.size());
  }
  TRY_ASSIGN(auto sound, sound_ranges(plan, transaction.data(),
                                      transaction.claimed(plan.ranges.size()), options, meter));
  TRY(transaction.restart_record(sound));
  return sound;
}

// The plan of a kInline save with the places that the ranges have in the model file.
SavePlan placed_in(const ModelSegments& segments, SavePlan plan) {
  const std::vector<std::uint64_t> offsets = deferred_offsets(segments);
  for (std::size_t i = 0; i < plan.ranges.size(); ++i) {
    plan.ranges[i].offset = offsets[i];
  }
  if (!plan.files.empty()) {
    plan.files[0].bytes = segments.bytes;
  }
  return plan;
}

std::vector<ModelBuilder> builders_for(const SavePlan& plan, const SourceModels& models,
                                       const Checkpoint& checkpoint) {
  std::vector<ModelBuilder> builders;
  for (const Model& model : models.all()) {
    builders.emplace_back(plan, model, checkpoint, static_cast<std::uint32_t>(builders.size()));
  }
  return builders;
}

// Everything that is written next to the model.
struct DataPlan {
  std::optional<SavePlan> own;  // nothing: the given plan
  // With kInline, the model is the data file, so it is built before anything is copied.
  std::vector<ModelBuilder> builders;
  std::optional<ModelSegments> model;
};

// Adds what is written in addition to linked ranges: the first ranges, with their numbers.
void add_written_part(const SavePlan& plan, SavePlan& part) {
  const auto count = static_cast<std::ptrdiff_t>(plan.written_ranges());
  if (count == 0) {
    return;
  }
  part.tensors = plan.tensors;
  part.ranges.assign(plan.ranges.begin(), plan.ranges.begin() + count);
  std::copy_if(plan.files.begin(), plan.files.end(), std::back_inserter(part.files),
               [](const PlannedFile& file) { return !file.is_linked; });
  part.bytes = plan.bytes;
}

Result<DataPlan> plan_data(const SavePlan& plan, const SourceModels& models,
                           const Checkpoint& checkpoint, const WriteOptions& options) {
  DataPlan data;
  if (plan.layout == Layout::kInline) {  // never of a set
    data.builders = builders_for(plan, models, checkpoint);
    TRY_ASSIGN(data.model, data.builders.front().build(options.inputs, {}));
    data.own = placed_in(*data.model, plan);
  } else if (plan.layout == Layout::kLink) {
    if (options.checksum != Checksum::kNone) {
      return fail(ErrorCode::kInvalidArgument,
                  "a checksum requires reading whole files, which the layout 'link' avoids; leave "
                  "out the checksum");
    }
    data.own.emplace();
    data.own->models = plan.models;
    data.own->data_dir = plan.data_dir;
    data.own->layout = plan.layout;
    data.own->job = plan.job;
    add_written_part(plan, *data.own);
  }
  return data;
}

// Writes the models, then their manifests, which name all of them.
Result<std::vector<ModelIdentity>> write_models(std::vector<ModelBuilder>& builders,
                                                std::optional<ModelSegments> inline_model,
                                                const CopiedFiles& copied,
                                                const std::map<std::size_t, Overflow>& overflows,
                                                const WriteOptions& options,
                                                const Transaction& transaction) {
  std::vector<ModelIdentity> written;
  for (ModelBuilder& builder : builders) {
    std::optional<ModelSegments> segments = std::exchange(inline_model, std::nullopt);
    if (!segments) {
      TRY_ASSIGN(segments, builder.build(options.inputs, copied.sha1s));
    }
    TRY_ASSIGN(const auto identity,
               write_model_file({transaction.staging(), builder.name(), *segments,
                                 ModelAccess::cuts(builder.model()), copied.crcs, options}));
    written.push_back(identity);
  }
  std::vector<std::string> manifests;
  for (const ModelBuilder& builder : builders) {
    manifests.push_back(builder.manifest_for(written, copied.crcs, overflows));
  }
  TRY(write_manifests(transaction, manifests));
  return written;
}

// Everything that the leader prepares before anything is copied.
struct PreparedOutput {
  std::unique_ptr<Transaction> transaction;
  WrittenRanges resumed;
};

Result<PreparedOutput> prepare_output(const SavePlan& plan, const std::filesystem::path& out_dir,
                                      std::optional<OutputFolder> folder,
                                      const WriteOptions& options, ProgressMeter& meter) {
  if (!folder) {
    TRY_ASSIGN(folder, open_output_folder(out_dir, options.sync));
  }
  // The record knows what one process has written.
  const bool resumes = options.resume == Resume::kYes && options.team == nullptr;
  TRY_ASSIGN(
      auto transaction,
      Transaction::begin(*std::move(folder), {names_of(plan), plan.data_dir, options.sync,
                                              options.overwrite, plan.layout, plan.files,
                                              resumes ? plan.job : std::string(), plan.data_name}));
  PreparedOutput output{std::move(transaction), WrittenRanges(plan.ranges.size())};
  TRY_ASSIGN(output.resumed, resumed_ranges(plan, *output.transaction, options, meter));
  return output;
}

// A process that follows: copies its share into the folder that the leader has made.
Result<StagedSave> follow(const SavePlan& plan, const SourceModels& models,
                          const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                          const WriteOptions& options) {
  const std::string& job = plan.job;
  TRY_ASSIGN(const auto leader, from_leader(*options.team, std::string()));
  const std::filesystem::path staging =
      out_dir / leader.substr(std::min(job.size(), leader.size()));
  auto data =
      Directory::open(plan.layout == Layout::kPerTensor ? staging / plan.data_dir : staging);
  if (!leader.starts_with(job)) {
    data = fail(ErrorCode::kInvalidArgument,
                "sees other files or was given other options than the first process; all processes "
                "need the same options, and the same files on a shared file system");
  }
  if (!data) {
    return fail(give_up(*options.team, data.error()));
  }
  const WrittenRanges none;
  ProgressMeter meter(options.progress);
  TRY_ASSIGN(
      auto copied,
      copy_share(*options.team, {plan, models, checkpoint, *data, options, none, nullptr}, meter));
  auto state = std::make_unique<StagedSaveAccess::State>(staging, plan);
  state->written.range_crcs = std::move(copied.crcs);
  return StagedSaveAccess::make(std::move(state));
}

}  // namespace

Result<StagedSave> write_plan(const SavePlan& given_plan, std::span<const Model> given_models,
                              const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                              std::optional<OutputFolder> folder, const WriteOptions& options) {
  const SourceModels models(given_models);
  TRY_ASSIGN(auto data, plan_data(given_plan, models, checkpoint, options));
  const SavePlan& plan = data.own ? *data.own : given_plan;
  const Team* const team = options.team;
  if (team != nullptr && team->rank != 0) {
    return follow(plan, models, checkpoint, out_dir, options);
  }
  ProgressMeter meter(options.progress);
  auto output = prepare_output(plan, out_dir, std::move(folder), options, meter);
  if (team != nullptr) {
    TRY(from_leader(*team, output
                               ? Result<std::string>(plan.job + output->transaction->staging_name())
                               : fail(output.error())));
  }
  if (!output) {
    return fail(std::move(output).error());
  }
  Transaction& transaction = *output->transaction;
  const CopyJob copy{plan,    models,          checkpoint,           transaction.data(),
                     options, output->resumed, &transaction.record()};
  TRY_ASSIGN(auto copied,
             team == nullptr ? copy_files(copy, meter) : copy_share(*team, copy, meter));
  auto state = std::make_unique<StagedSaveAccess::State>(transaction.staging().path(), plan);
  TRY(check_recorded_crcs(plan, models, copied.crcs));
  TRY(check_partly_used_storages(given_plan, checkpoint, options.threads));
  WrittenSave& written = state->written;
  TRY_ASSIGN(written.overflows, find_overflows(given_plan, checkpoint, copied.infinite));
  auto builders =
      data.model ? std::move(data.builders) : builders_for(given_plan, models, checkpoint);
  TRY_ASSIGN(state->identities, write_models(builders, std::move(data.model), copied,
                                             written.overflows, options, transaction));
  for (const auto& [range, error] : copied.errors) {
    written.quantization_errors.emplace(range, error.relative_rms());
  }
  // From here on the sources are no longer needed.
  TRY(checkpoint.check_unchanged());
  written.range_crcs = std::move(copied.crcs);
  for (const ModelBuilder& builder : builders) {
    written.inline_crcs.insert(builder.inline_crcs().begin(), builder.inline_crcs().end());
  }
  written.bytes_resumed = bytes_of(plan, output->resumed);
  state->transaction = std::move(output->transaction);
  return StagedSaveAccess::make(std::move(state));
}

Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                              const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                              const WriteOptions& options) {
  return write_plan(plan, models, checkpoint, out_dir, std::nullopt, options);
}

}  // namespace onnx_external
