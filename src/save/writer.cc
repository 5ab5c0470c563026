#include "onnx_external/writer.h"

#include <future>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "save/journal.h"
#include "save/manifest.h"
#include "save/plan_copier.h"
#include "save/publish.h"
#include "save/resume.h"
#include "save/teamwork.h"
#include "save/test_data_files.h"

namespace onnx_external {

struct StagedSave::State {
  std::filesystem::path staging;
  std::string model_name;
  std::optional<Transaction> transaction;  // the leader's
  std::vector<std::uint32_t> crcs;
  std::uint64_t bytes_kept = 0;
  Teamwork team;
  bool ended = false;

  State(std::filesystem::path folder, const SavePlan& plan, Team* members)
      : staging(std::move(folder)), model_name(plan.model_name), team(members) {}
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
    return team.hear(std::move(mine));
  }
};

StagedSave::StagedSave(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedSave::StagedSave(StagedSave&&) noexcept = default;
StagedSave& StagedSave::operator=(StagedSave&&) noexcept = default;
StagedSave::~StagedSave() = default;

const std::filesystem::path& StagedSave::directory() const {
  return state_->staging;
}

std::filesystem::path StagedSave::model_path() const {
  return directory() / state_->model_name;
}

const std::vector<std::uint32_t>& StagedSave::part_crcs() const {
  return state_->crcs;
}

std::uint64_t StagedSave::bytes_kept() const {
  return state_->bytes_kept;
}

Status StagedSave::publish() {
  return state_->end(state_->transaction ? state_->transaction->publish() : Status());
}

namespace {

std::uint32_t crc32_of(std::string_view text) {
  Crc32 crc;
  crc.update(std::as_bytes(std::span(text)));
  return crc.value();
}

// A record of which only parts were copied was not seen whole, so its CRC is checked here.
Status check_partly_used_storages(const SavePlan& plan, const Checkpoint& checkpoint, int threads) {
  enum Use : std::uint8_t { kUnused, kParts, kWhole };
  std::vector<Use> uses(checkpoint.storages().size(), kUnused);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.source != TensorSource::kCheckpoint || tensor.nbytes == 0) {
      continue;
    }
    const std::uint32_t storage = checkpoint.tensors()[tensor.source_index].storage;
    const bool whole = tensor.part && checkpoint.plain_range(tensor.source_index) &&
                       tensor.nbytes == checkpoint.storages()[storage].bytes;
    uses[storage] = std::max(uses[storage], whole ? kWhole : kParts);
  }
  std::vector<std::uint32_t> parts;
  for (std::uint32_t storage = 0; storage < uses.size(); ++storage) {
    if (uses[storage] == kParts) {
      parts.push_back(storage);
    }
  }
  return parallel_for(parts.size(), threads, [&](std::size_t index, int) {
    return checkpoint.check_storage(parts[index]);
  });
}

// Turns a plan and what was copied into the model and its manifest.
class ModelBuilder {
 public:
  ModelBuilder(const SavePlan& plan, Model& model, const Checkpoint& checkpoint)
      : plan_(plan), model_(model), checkpoint_(checkpoint) {}

  // The serialized model. `sha1s`: of each file of the plan, where checksums are recorded.
  Result<std::string> build(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    Status attached = attach(inputs, sha1s);
    return attached ? model_.serialize() : fail(std::move(attached).error());
  }

  // Requires: build() succeeded.
  std::string manifest_for(std::string_view model_text, const CopiedFiles& copied,
                           std::vector<ManifestFile> test_data) {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (plan_.tensors[i].part) {
        manifest_.tensors[i].crc32 = copied.crcs[*plan_.tensors[i].part];
      }
    }
    manifest_.test_data = std::move(test_data);
    manifest_.model_file = plan_.model_name;
    manifest_.model_bytes = model_text.size();
    manifest_.model_crc32 = crc32_of(model_text);
    return manifest_text(manifest_);
  }

 private:
  Status attach(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    attachments_.reserve(plan_.tensors.size());
    manifest_.tensors.reserve(plan_.tensors.size());
    for (const PlannedTensor& tensor : plan_.tensors) {
      ManifestTensor record = record_of(tensor);
      if (tensor.part) {
        const PlannedPart& part = plan_.parts[*tensor.part];
        record.file = plan_.files[part.file].name;
        record.offset = part.offset;
        refer(tensor, part, sha1s.empty() ? std::string() : sha1s[part.file]);
      } else if (Status status = take_inline(tensor, record); !status) {
        return status;
      }
      manifest_.tensors.push_back(std::move(record));
    }
    Status attached = model_.attach(attachments_, inputs);
    attachments_ = {};  // the model has them now
    return attached;
  }

  ManifestTensor record_of(const PlannedTensor& tensor) const {
    ManifestTensor record;
    record.slot = tensor.name;
    if (tensor.source == TensorSource::kModelExternal) {
      record.graph = model_.external_tensors()[tensor.source_index].graph;
    } else if (tensor.slot != Attachment::kNoSlot) {
      record.graph = model_.facts().slots[tensor.slot].graph;
    }
    record.key = tensor.key;
    record.rule = tensor.rule ? std::string(rule_name(*tensor.rule)) : std::string();
    record.length = tensor.nbytes;
    record.data_type = tensor.data_type;
    record.dims = tensor.dims;
    return record;
  }

  void refer(const PlannedTensor& tensor, const PlannedPart& part, std::string sha1) {
    ExternalRef ref{plan_.location(part.file), part.offset, tensor.nbytes, std::move(sha1)};
    if (tensor.source == TensorSource::kModelExternal) {
      model_.relocate(tensor.source_index, ref);
    } else {
      attachments_.push_back(
          Attachment{tensor.slot, tensor.name, tensor.data_type, tensor.dims, std::move(ref)});
    }
  }

  Status take_inline(const PlannedTensor& tensor, ManifestTensor& record) {
    std::string raw(static_cast<std::size_t>(tensor.nbytes), '\0');
    Status status =
        checkpoint_.read(tensor.source_index, 0, std::as_writable_bytes(std::span(raw)));
    if (!status) {
      return status;
    }
    record.crc32 = crc32_of(raw);
    attachments_.push_back(
        Attachment{tensor.slot, tensor.name, tensor.data_type, tensor.dims, std::move(raw)});
    return {};
  }

  const SavePlan& plan_;
  Model& model_;
  const Checkpoint& checkpoint_;
  std::vector<Attachment> attachments_;
  Manifest manifest_;
};

// Starts building the model while its data is copied, where the copying neither needs the model
// (for data that it has already) nor makes what it must hold (checksums). Else get() builds it.
std::future<Result<std::string>> start_building(ModelBuilder& builder, const Model& model,
                                                const WriteOptions& options) {
  const auto build = [&builder, &options] { return builder.build(options.inputs, {}); };
  if (thread_count(options.threads) == 1 || options.checksum != Checksum::kNone ||
      !model.external_tensors().empty()) {
    return {};
  }
  try {
    return std::async(std::launch::async, build);
  } catch (const std::system_error&) {  // no thread to be had
    return {};
  }
}

// What a killed save of this job has left, as far as it is sound.
Result<WrittenParts> kept_parts(const SavePlan& plan, const Transaction& transaction,
                                std::string_view job, const WriteOptions& options,
                                ProgressMeter& meter) {
  WrittenParts none(plan.parts.size());
  if (!transaction.is_taken_over()) {
    return none;
  }
  auto claimed = read_journal(transaction.staging(), job, plan.parts.size());
  return keep_written(plan, transaction.data(), std::move(claimed).value_or(std::move(none)),
                      options, meter);
}

// What the leader makes before anything is copied.
struct Ground {
  Transaction transaction;
  std::vector<ManifestFile> test_data;
  WrittenParts kept;
  std::optional<Journal> journal;
};

// Files into which several processes write exist before the first of them does.
Status make_shared_files(const SavePlan& plan, const Teamwork& team, const Directory& data) {
  for (const std::uint32_t number : team.shared_files(plan)) {
    auto file = OutputFile::create(data, plan.files[number].name);
    Status status = file ? file->preallocate(plan.files[number].bytes) : fail(file.error());
    if (status) {
      status = file->close();
    }
    if (!status) {
      return status;
    }
  }
  return {};
}

Result<Ground> make_ground(const SavePlan& plan, const std::filesystem::path& out_dir,
                           const std::string& job, const WriteOptions& options,
                           const RecordedInputs* inputs, const Teamwork& team,
                           ProgressMeter& meter) {
  // The journal knows what one process has written.
  const bool resumes = options.resume == Resume::kYes && team.is_alone();
  auto transaction =
      Transaction::begin(out_dir, {plan.model_name, plan.data_dir, options.sync, options.overwrite,
                                   plan.layout, plan.files, resumes ? job : std::string()});
  if (!transaction) {
    return fail(std::move(transaction).error());
  }
  Ground ground{*std::move(transaction), {}, WrittenParts(plan.parts.size()), std::nullopt};
  if (inputs != nullptr) {
    auto written = write_test_data(*inputs, ground.transaction);
    if (!written) {
      return fail(std::move(written).error());
    }
    ground.test_data = *std::move(written);
  }
  if (!team.is_alone()) {
    Status made = make_shared_files(plan, team, ground.transaction.data());
    return made ? Result<Ground>(std::move(ground)) : fail(std::move(made).error());
  }
  auto kept = kept_parts(plan, ground.transaction, job, options, meter);
  auto journal =
      kept ? Journal::start(ground.transaction.staging(), job, *kept) : fail(kept.error());
  if (!journal) {
    return fail(std::move(journal).error());
  }
  ground.kept = *std::move(kept);
  ground.journal = *std::move(journal);
  return ground;
}

// SHA-1s of files in which several processes wrote; those of the others are known.
Status add_shared_checksums(const SavePlan& plan, const Teamwork& team, const Directory& data,
                            const WriteOptions& options, CopiedFiles& copied) {
  if (options.checksum == Checksum::kNone) {
    return {};
  }
  for (const std::uint32_t number : team.shared_files(plan)) {
    auto sha1 = data_file_sha1(data, plan.files[number]);
    if (!sha1) {
      return fail(std::move(sha1).error());
    }
    copied.sha1s[number] = *std::move(sha1);
  }
  return {};
}

// A process that follows: copies its share into the folder that the leader has made.
Result<StagedSave> follow(const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
                          const std::filesystem::path& out_dir, const WriteOptions& options,
                          Teamwork& team) {
  const auto name = team.hear(Result<std::string>(std::string()));
  if (!name) {
    return fail(name.error());
  }
  const std::filesystem::path staging = out_dir / *name;
  const auto data =
      Directory::open(plan.layout == Layout::kPerTensor ? staging / plan.data_dir : staging);
  const WrittenParts none(plan.parts.size());
  ProgressMeter meter(options.progress);
  auto copied = team.join(plan, data ? copy_files({plan, model, checkpoint, *data, options, none,
                                                   nullptr, team.parts_of_others(plan)},
                                                  meter)
                                     : Result<CopiedFiles>(fail(data.error())));
  if (!copied) {
    return fail(std::move(copied).error());
  }
  auto state = std::make_unique<StagedSave::State>(staging, plan, options.team);
  state->crcs = std::move(copied->crcs);
  return StagedSave(std::move(state));
}

}  // namespace

Result<StagedSave> write_plan(const SavePlan& plan, Model& model, const Checkpoint& checkpoint,
                              const std::filesystem::path& out_dir, const WriteOptions& options,
                              const RecordedInputs* inputs) {
  Teamwork team(options.team);
  const auto job = name_job(plan, model, checkpoint);
  if (Status agreed = job ? team.agree(*job) : fail(job.error()); !agreed) {
    return fail(std::move(agreed).error());
  }
  if (!team.leads()) {
    return follow(plan, model, checkpoint, out_dir, options, team);
  }
  ProgressMeter meter(options.progress);
  auto ground = make_ground(plan, out_dir, *job, options, inputs, team, meter);
  using Text = Result<std::string>;
  const Text told = team.hear(ground ? Text(ground->transaction.staging_path().filename())
                                     : Text(fail(ground.error())));
  if (!told) {
    return fail(told.error());
  }
  Transaction& transaction = ground->transaction;
  ModelBuilder builder(plan, model, checkpoint);
  auto building = start_building(builder, model, options);
  Journal* const journal = ground->journal ? &*ground->journal : nullptr;
  auto copied = team.join(plan, copy_files({plan, model, checkpoint, transaction.data(), options,
                                            ground->kept, journal, team.parts_of_others(plan)},
                                           meter));
  if (!copied) {
    return fail(std::move(copied).error());
  }
  // From here on the others wait for the end, which is the state's to tell.
  auto state = std::make_unique<StagedSave::State>(transaction.staging_path(), plan, options.team);
  Status status = add_shared_checksums(plan, team, transaction.data(), options, *copied);
  if (status) {
    status = check_partly_used_storages(plan, checkpoint, thread_count(options.threads));
  }
  if (status) {
    const auto text =
        building.valid() ? building.get() : builder.build(options.inputs, copied->sha1s);
    status = text ? transaction.write_model(
                        *text, builder.manifest_for(*text, *copied, std::move(ground->test_data)))
                  : Status(fail(text.error()));
  }
  // From here on the sources are no longer needed.
  if (status) {
    status = checkpoint.check_unchanged();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  state->crcs = std::move(copied->crcs);
  state->bytes_kept = bytes_of(plan, ground->kept);
  state->transaction.emplace(std::move(transaction));
  return StagedSave(std::move(state));
}

}  // namespace onnx_external
