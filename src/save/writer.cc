#include "onnx_external/writer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/try.h"
#include "onnx/model_access.h"
#include "onnx/model_edits.h"
#include "onnx/model_pieces.h"
#include "onnx/model_source.h"
#include "save/journal.h"
#include "save/known_bytes.h"
#include "save/manifest.h"
#include "save/model_writer.h"
#include "save/plan_copier.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/resume.h"
#include "save/reuse.h"
#include "save/sparse_files.h"
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

std::filesystem::path StagedSave::model_path() const {
  return directory() / state_->model_name;
}

std::string StagedSave::manifest_location() const {
  if (!state_->transaction) {
    return {};
  }
  return onnx_external::manifest_location(state_->transaction->options());
}

std::vector<std::pair<std::string, std::string>> StagedSave::data_left_for() const {
  return state_->transaction ? state_->transaction->data_left_for()
                             : std::vector<std::pair<std::string, std::string>>();
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
    if (tensor.part && plan.layout == Layout::kLink) {
      continue;  // nothing of it was copied
    }
    const std::uint32_t storage = checkpoint.tensors()[tensor.source_index].storage;
    const bool whole = tensor.part && planned_range(checkpoint, tensor) &&
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
  ModelBuilder(const SavePlan& plan, const Model& model, const Checkpoint& checkpoint)
      : plan_(plan), model_(model), checkpoint_(checkpoint) {}

  // The model file. `sha1s`: of each file of the plan, where checksums are recorded. What the plan
  // has inside the model is deferred, numbered by its part.
  Result<ModelPieces> build(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    TRY_ASSIGN(auto edits, collect_edits(inputs, sha1s));
    return model_pieces(model_, std::move(edits));
  }

  // Requires: build() succeeded.
  std::string manifest_for(const ModelIdentity& written, const CopiedFiles& copied,
                           std::vector<ManifestFile> test_data) {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (is_copied(plan_.tensors[i])) {
        lines_.set_crc(i, copied.crcs[*plan_.tensors[i].part]);
      }
    }
    Manifest manifest;
    manifest.options = plan_.asked;
    manifest.linked = linked_files();
    manifest.test_data = std::move(test_data);
    manifest.model_file = plan_.model_name;
    manifest.model_bytes = written.bytes;
    manifest.model_crc32 = written.crc32;
    return manifest_text(manifest, std::move(lines_));
  }

 private:
  // Of what is planned: moved if the model has it, else attached.
  struct Placement {
    ModelEdits edits;
    std::vector<Attachment> attachments;
  };

  Result<ModelEdits> collect_edits(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    Placement placed;
    placed.attachments.reserve(plan_.tensors.size());
    lines_ = ManifestLines(plan_.tensors.size());
    for (const PlannedTensor& tensor : plan_.tensors) {
      ManifestTensor record = record_of(tensor);
      if (tensor.part && plan_.layout == Layout::kInline) {
        place(tensor, DeferredBytes{*tensor.part, tensor.nbytes}, placed);
      } else if (tensor.part) {
        const PlannedPart& part = plan_.parts[*tensor.part];
        record.file = plan_.kept.empty() ? plan_.files[part.file].name : plan_.location(part.file);
        record.offset = part.offset;
        place(tensor,
              ExternalRef{plan_.location(part.file), part.offset, tensor.nbytes,
                          sha1s.empty() ? std::string() : sha1s[part.file]},
              placed);
      } else {
        TRY(take_inline(tensor, record, placed));
      }
      lines_.add(record);
    }
    TRY(attach(model_, placed.attachments, inputs, placed.edits));
    return std::move(placed.edits);
  }

  bool is_copied(const PlannedTensor& tensor) const {
    return tensor.part && plan_.layout != Layout::kLink;
  }

  std::vector<LinkedFile> linked_files() const {
    std::map<std::string, std::uint64_t> files;
    if (plan_.layout == Layout::kLink) {
      for (const PlannedFile& file : plan_.files) {
        files.emplace(file.name, file.bytes);
      }
    }
    std::vector<LinkedFile> linked;
    linked.reserve(files.size());
    for (const auto& [name, bytes] : files) {
      linked.push_back({name, bytes});
    }
    return linked;
  }

  ManifestTensor record_of(const PlannedTensor& tensor) const {
    ManifestTensor record;
    record.slot = tensor.name;
    if (tensor.source == TensorSource::kModelExternal) {
      const ExternalTensor& given = model_.external_tensors()[tensor.source_index];
      record.graph = given.graph;
      record.place = given.place;
    } else if (tensor.source == TensorSource::kModelInline) {
      const InlineTensor& given = model_.inline_tensors()[tensor.source_index];
      record.graph = given.graph;
      record.place = given.place;
    } else if (tensor.slot != kNoSlot) {
      record.graph = model_.facts().slots[tensor.slot].graph;
    }
    if (is_copied(tensor)) {
      record.crc32 = 0;  // manifest_for() puts the right one there
    } else if (tensor.part && tensor.source == TensorSource::kCheckpoint) {
      // Only what the checkpoint itself records is known of bytes that nobody read.
      record.crc32 = recorded_crc_of(checkpoint_, tensor);
    } else if (tensor.part) {
      record.crc32 = tensor.known_crc;
    }
    record.key = tensor.key;
    record.rule = tensor.rule ? std::string(rule_name(*tensor.rule)) : std::string();
    record.recipe = tensor.recipe;
    record.length = tensor.nbytes;
    record.data_type = tensor.data_type;
    record.dims = tensor.dims;
    return record;
  }

  void place(const PlannedTensor& tensor, TensorData data, Placement& placed) const {
    if (tensor.source == TensorSource::kModelExternal) {
      relocate(model_, tensor.source_index, data, placed.edits);
    } else if (tensor.source == TensorSource::kModelInline) {
      externalize(model_, tensor.source_index, std::get<ExternalRef>(data), placed.edits);
    } else {
      placed.attachments.push_back({tensor.slot,
                                    tensor.slot == kNoSlot ? tensor.name : std::string(),
                                    tensor.data_type, tensor.dims, std::move(data)});
    }
  }

  Status take_inline(const PlannedTensor& tensor, ManifestTensor& record, Placement& placed) const {
    std::string raw(static_cast<std::size_t>(tensor.nbytes), '\0');
    const auto bytes = std::as_writable_bytes(std::span(raw));
    Status status = tensor.source == TensorSource::kCheckpoint
                        ? read_planned(checkpoint_, tensor, 0, bytes)
                        : read_external(tensor, bytes);
    if (!status) {
      return status;
    }
    record.crc32 = crc32_of(raw);
    status = check_known_crc(tensor, model_, *record.crc32);
    place(tensor, std::move(raw), placed);
    return status;
  }

  Status read_external(const PlannedTensor& tensor, std::span<std::byte> out) const {
    const ExternalTensor& external = model_.external_tensors()[tensor.source_index];
    TRY_ASSIGN(const auto file, open_external(model_, external));
    return file->read(external.offset, out);
  }

  const SavePlan& plan_;
  const Model& model_;
  const Checkpoint& checkpoint_;
  ManifestLines lines_;
};

// Copies, and builds the model beside that where the copying neither needs it (for data that it has
// already) nor makes what it must hold (checksums).
Result<CopiedFiles> copy_and_build(CopyJob job, const SavePlan& given_plan, ModelBuilder& builder,
                                   std::optional<ModelPieces>& model, ProgressMeter& meter) {
  const bool needs_model =
      std::any_of(given_plan.tensors.begin(), given_plan.tensors.end(),
                  [](const auto& tensor) { return tensor.source != TensorSource::kCheckpoint; });
  if (!model && !needs_model && job.options.checksum == Checksum::kNone) {
    job.own = [&]() -> Status {
      TRY_ASSIGN(auto pieces, builder.build(job.options.inputs, {}));
      model = std::move(pieces);
      return {};
    };
  }
  return copy_files(job, meter);
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

Result<DataPlan> plan_data(const SavePlan& plan, ModelBuilder& builder,
                           const WriteOptions& options) {
  DataPlan data;
  if (plan.layout == Layout::kInline) {
    TRY_ASSIGN(data.model, builder.build(options.inputs, {}));
    data.own = placed_in(*data.model, plan);
  } else if (plan.layout == Layout::kLink) {
    if (options.checksum != Checksum::kNone) {
      return fail(ErrorCode::kInvalidArgument,
                  "a checksum of whole files means reading them; leave it out with layout link");
    }
    data.own.emplace();
    data.own->model_name = plan.model_name;
    data.own->data_dir = plan.data_dir;
    data.own->layout = plan.layout;
  }
  return data;
}

// What the leader makes before anything is copied.
struct Ground {
  Transaction transaction;
  std::vector<ManifestFile> test_data;
  WrittenParts kept;
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

Result<Ground> make_ground(const SavePlan& plan, const Checkpoint& checkpoint,
                           const std::filesystem::path& out_dir, const std::string& job,
                           const WriteOptions& options, const RecordedInputs* inputs,
                           const Teamwork& team, ProgressMeter& meter) {
  // The journal knows what one process has written.
  const bool resumes = options.resume == Resume::kYes && team.is_alone();
  SparseFiles sparse = team.is_alone() ? find_sparse_files(plan, checkpoint) : SparseFiles();
  TRY_ASSIGN(
      auto transaction,
      Transaction::begin(out_dir, {plan.model_name, plan.data_dir, options.sync, options.overwrite,
                                   plan.layout, files_to_write(plan), !plan.kept.empty(),
                                   sparse.hole_bytes, resumes ? job : std::string()}));
  TRY(check_kept_files(plan, out_dir, options.sync));
  Ground ground{std::move(transaction),
                {},
                WrittenParts(plan.parts.size()),
                std::nullopt,
                std::move(sparse.files)};
  if (inputs != nullptr) {
    TRY_ASSIGN(ground.test_data, write_test_data(*inputs, ground.transaction));
  }
  if (!team.is_alone()) {
    TRY(make_shared_files(plan, team, ground.transaction.data()));
    return ground;
  }
  TRY_ASSIGN(auto kept, kept_parts(plan, ground.transaction, job, options, meter));
  TRY_ASSIGN(auto journal, Journal::start(ground.transaction.staging(), job, kept));
  ground.kept = std::move(kept);
  ground.journal = std::move(journal);
  return ground;
}

// SHA-1s of files in which several processes wrote; those of the others are known.
Status add_shared_checksums(const SavePlan& plan, const Teamwork& team, const Directory& data,
                            const WriteOptions& options, CopiedFiles& copied) {
  if (options.checksum == Checksum::kNone) {
    return {};
  }
  for (const std::uint32_t number : team.shared_files(plan)) {
    TRY_ASSIGN(auto sha1, data_file_sha1(data, plan.files[number]));
    copied.sha1s[number] = std::move(sha1);
  }
  return {};
}

// A process that follows: copies its share into the folder that the leader has made.
Result<StagedSave> follow(const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
                          const std::filesystem::path& out_dir, const WriteOptions& options,
                          Teamwork& team) {
  TRY_ASSIGN(const auto name, team.hear(Result<std::string>(std::string())));
  const std::filesystem::path staging = out_dir / name;
  const auto data =
      Directory::open(plan.layout == Layout::kPerTensor ? staging / plan.data_dir : staging);
  const WrittenParts none(plan.parts.size());
  ProgressMeter meter(options.progress);
  TRY_ASSIGN(auto copied,
             team.join(plan, data ? copy_files({plan, model, checkpoint, *data, options, none,
                                                nullptr, team.parts_of_others(plan)},
                                               meter)
                                  : Result<CopiedFiles>(fail(data.error()))));
  auto state = std::make_unique<StagedSaveAccess::State>(staging, plan, options.team);
  state->crcs = std::move(copied.crcs);
  return StagedSaveAccess::make(std::move(state));
}

// The model file, then the manifest that knows it.
Status write_model(Transaction& transaction, ModelBuilder& builder, const ModelPieces& pieces,
                   const Model& model, const CopiedFiles& copied,
                   std::vector<ManifestFile> test_data, const WriteOptions& options) {
  TRY_ASSIGN(const auto written,
             write_model_file({transaction.staging(), transaction.options().model_name, pieces,
                               ModelAccess::cuts(model), copied.crcs, options}));
  return transaction.write_manifest(builder.manifest_for(written, copied, std::move(test_data)));
}

}  // namespace

Result<StagedSave> write_plan(const SavePlan& given_plan, const Model& model,
                              const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                              const WriteOptions& options, const RecordedInputs* inputs) {
  ModelBuilder builder(given_plan, model, checkpoint);
  TRY_ASSIGN(auto data, plan_data(given_plan, builder, options));
  const SavePlan& plan = data.own ? *data.own : given_plan;
  Teamwork team(options.team);
  const auto job = name_job(plan, model, checkpoint);
  TRY(job ? team.agree(*job) : fail(job.error()));
  if (!team.leads()) {
    return follow(plan, model, checkpoint, out_dir, options, team);
  }
  ProgressMeter meter(options.progress);
  auto ground = make_ground(plan, checkpoint, out_dir, *job, options, inputs, team, meter);
  using Text = Result<std::string>;
  const Text told = team.hear(ground ? Text(ground->transaction.staging_path().filename())
                                     : Text(fail(ground.error())));
  if (!told) {
    return fail(told.error());
  }
  Transaction& transaction = ground->transaction;
  Journal* const journal = ground->journal ? &*ground->journal : nullptr;
  const WrittenParts there = with_kept_files(plan, ground->kept);
  TRY_ASSIGN(
      auto copied,
      team.join(plan, copy_and_build({plan, model, checkpoint, transaction.data(), options, there,
                                      journal, team.parts_of_others(plan), ground->sparse},
                                     given_plan, builder, data.model, meter)));
  // From here on the others wait for the end, which is the state's to tell.
  auto state =
      std::make_unique<StagedSaveAccess::State>(transaction.staging_path(), plan, options.team);
  Status status = check_known_crcs(plan, model, copied.crcs);
  if (status) {
    status = add_shared_checksums(plan, team, transaction.data(), options, copied);
  }
  if (status) {
    status = check_partly_used_storages(given_plan, checkpoint, thread_count(options.threads));
  }
  if (status) {
    const auto pieces = data.model ? Result<ModelPieces>(*std::move(data.model))
                                   : builder.build(options.inputs, copied.sha1s);
    status = pieces ? write_model(transaction, builder, *pieces, model, copied,
                                  std::move(ground->test_data), options)
                    : Status(fail(pieces.error()));
  }
  // From here on the sources are no longer needed.
  if (status) {
    status = checkpoint.check_unchanged();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  state->crcs = std::move(copied.crcs);
  state->bytes_kept = bytes_of(plan, ground->kept);
  state->transaction.emplace(std::move(transaction));
  return StagedSaveAccess::make(std::move(state));
}

}  // namespace onnx_external
