#include "onnx_external/writer.h"

#include <algorithm>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "onnx/cut_tensors.h"
#include "save/journal.h"
#include "save/manifest.h"
#include "save/model_source.h"
#include "save/model_writer.h"
#include "save/plan_copier.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/resume.h"
#include "save/test_data_files.h"

namespace onnx_external {

struct StagedSave::State {
  Transaction transaction;
  std::vector<std::uint32_t> crcs;
  std::uint64_t bytes_kept = 0;
};

StagedSave::StagedSave(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedSave::StagedSave(StagedSave&&) noexcept = default;
StagedSave& StagedSave::operator=(StagedSave&&) noexcept = default;
StagedSave::~StagedSave() = default;

const std::filesystem::path& StagedSave::directory() const {
  return state_->transaction.staging_path();
}

std::filesystem::path StagedSave::model_path() const {
  return directory() / state_->transaction.options().model_name;
}

std::string StagedSave::manifest_location() const {
  const Transaction& transaction = state_->transaction;
  return transaction.options().layout == Layout::kPerTensor
             ? transaction.options().data_dir + "/" + transaction.manifest_name()
             : transaction.manifest_name();
}

const std::vector<std::uint32_t>& StagedSave::part_crcs() const {
  return state_->crcs;
}

std::uint64_t StagedSave::bytes_kept() const {
  return state_->bytes_kept;
}

Status StagedSave::publish() {
  return state_->transaction.publish();
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
  ModelBuilder(const SavePlan& plan, Model& model, const Checkpoint& checkpoint)
      : plan_(plan), model_(model), checkpoint_(checkpoint) {}

  // The model file. `sha1s`: of each file of the plan, where checksums are recorded. What the plan
  // has inside the model is deferred, numbered by its part.
  Result<ModelPieces> build(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    Status attached = attach(inputs, sha1s);
    return attached ? model_pieces(model_) : fail(std::move(attached).error());
  }

  // Requires: build() succeeded.
  std::string manifest_for(const ModelIdentity& written, const CopiedFiles& copied,
                           std::vector<ManifestFile> test_data) {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (plan_.tensors[i].part && !copied.crcs.empty()) {
        manifest_.tensors[i].crc32 = copied.crcs[*plan_.tensors[i].part];
      }
    }
    if (plan_.layout == Layout::kLink) {
      list_linked();
    }
    manifest_.test_data = std::move(test_data);
    manifest_.model_file = plan_.model_name;
    manifest_.model_bytes = written.bytes;
    manifest_.model_crc32 = written.crc32;
    return manifest_text(manifest_);
  }

 private:
  Status attach(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    attachments_.reserve(plan_.tensors.size());
    manifest_.tensors.reserve(plan_.tensors.size());
    for (const PlannedTensor& tensor : plan_.tensors) {
      ManifestTensor record = record_of(tensor);
      if (tensor.part && plan_.layout == Layout::kInline) {
        place(tensor, DeferredBytes{*tensor.part, tensor.nbytes});
      } else if (tensor.part) {
        const PlannedPart& part = plan_.parts[*tensor.part];
        record.file = plan_.files[part.file].name;
        record.offset = part.offset;
        place(tensor, ExternalRef{plan_.location(part.file), part.offset, tensor.nbytes,
                                  sha1s.empty() ? std::string() : sha1s[part.file]});
      } else if (Status status = take_inline(tensor, record); !status) {
        return status;
      }
      manifest_.tensors.push_back(std::move(record));
    }
    Status attached = model_.attach(attachments_, inputs);
    attachments_ = {};  // the model has them now
    return attached;
  }

  // Only what the checkpoint itself records is known of bytes that nobody read.
  void list_linked() {
    std::map<std::string, std::uint64_t> files;
    for (const PlannedFile& file : plan_.files) {
      files.emplace(file.name, file.bytes);
    }
    for (const auto& [name, bytes] : files) {
      manifest_.linked.push_back({name, bytes});
    }
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& tensor = plan_.tensors[i];
      if (tensor.part && tensor.source == TensorSource::kCheckpoint) {
        manifest_.tensors[i].crc32 = recorded_crc_of(checkpoint_, tensor);
      }
    }
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

  void place(const PlannedTensor& tensor, TensorData data) {
    if (tensor.source == TensorSource::kModelExternal) {
      model_.relocate(tensor.source_index, data);
    } else if (tensor.source == TensorSource::kModelInline) {
      model_.externalize(tensor.source_index, std::get<ExternalRef>(data));
    } else {
      attachments_.push_back(
          Attachment{tensor.slot, tensor.name, tensor.data_type, tensor.dims, std::move(data)});
    }
  }

  Status take_inline(const PlannedTensor& tensor, ManifestTensor& record) {
    std::string raw(static_cast<std::size_t>(tensor.nbytes), '\0');
    const auto bytes = std::as_writable_bytes(std::span(raw));
    Status status = tensor.source == TensorSource::kCheckpoint
                        ? read_planned(checkpoint_, tensor, 0, bytes)
                        : read_external(tensor, bytes);
    if (!status) {
      return status;
    }
    record.crc32 = crc32_of(raw);
    place(tensor, std::move(raw));
    return {};
  }

  Status read_external(const PlannedTensor& tensor, std::span<std::byte> out) const {
    const ExternalTensor& external = model_.external_tensors()[tensor.source_index];
    const auto file = open_external(model_, external);
    return file ? (*file)->read(external.offset, out) : Status(fail(file.error()));
  }

  const SavePlan& plan_;
  Model& model_;
  const Checkpoint& checkpoint_;
  std::vector<Attachment> attachments_;
  Manifest manifest_;
};

// Starts building the model while its data is copied, where the copying neither needs the model
// (for data that it has already) nor makes what it must hold (checksums). Else get() builds it.
std::future<Result<ModelPieces>> start_building(ModelBuilder& builder, const SavePlan& plan,
                                                const WriteOptions& options) {
  const auto build = [&builder, &options] { return builder.build(options.inputs, {}); };
  const bool needs_model = std::any_of(
      plan.tensors.begin(), plan.tensors.end(),
      [](const PlannedTensor& tensor) { return tensor.source != TensorSource::kCheckpoint; });
  if (thread_count(options.threads) == 1 || options.checksum != Checksum::kNone || needs_model) {
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

// One save of a plan, step by step.
class PlanWriter {
 public:
  PlanWriter(const SavePlan& plan, Model& model, const Checkpoint& checkpoint,
             const WriteOptions& options)
      : plan_(&plan),
        model_(model),
        checkpoint_(checkpoint),
        options_(options),
        builder_(plan, model, checkpoint),
        meter_(options.progress) {}

  Result<StagedSave> write(const std::filesystem::path& out_dir, const RecordedInputs* inputs) {
    Status status = check_options();
    status = status ? place_parts() : std::move(status);
    status = status ? begin(out_dir) : std::move(status);
    status = status ? write_inputs(inputs) : std::move(status);
    status = status && plan_->layout != Layout::kLink ? copy() : std::move(status);
    status = status ? write_model() : std::move(status);
    // From here on the sources are no longer needed.
    status = status ? checkpoint_.check_unchanged() : std::move(status);
    if (!status) {
      return fail(std::move(status).error());
    }
    return StagedSave(std::make_unique<StagedSave::State>(
        StagedSave::State{*std::move(transaction_), std::move(copied_.crcs), copied_.bytes_kept}));
  }

 private:
  Status check_options() const {
    if (plan_->layout == Layout::kLink && options_.checksum != Checksum::kNone) {
      return fail(ErrorCode::kInvalidArgument,
                  "a checksum of whole files means reading them; leave it out with layout link");
    }
    return {};
  }

  // In kInline the model is the data file: its form comes first.
  Status place_parts() {
    if (plan_->layout != Layout::kInline) {
      return {};
    }
    if (Status built = build({}); !built) {
      return built;
    }
    placed_ = placed_in(*pieces_, *plan_);
    plan_ = &*placed_;
    return {};
  }

  Status build(const std::vector<std::string>& sha1s) {
    return keep(builder_.build(options_.inputs, sha1s));
  }

  Status keep(Result<ModelPieces> pieces) {
    if (!pieces) {
      return fail(std::move(pieces).error());
    }
    pieces_ = *std::move(pieces);
    return {};
  }

  Status begin(const std::filesystem::path& out_dir) {
    TransactionOptions names{plan_->model_name,
                             plan_->data_dir,
                             options_.sync,
                             options_.overwrite,
                             plan_->layout,
                             {},
                             {}};
    if (plan_->layout != Layout::kLink) {
      auto job = name_job(*plan_, model_, checkpoint_);
      if (!job) {
        return fail(std::move(job).error());
      }
      job_ = *std::move(job);
      names.files = plan_->files;
      names.job = options_.resume == Resume::kYes ? job_ : std::string();
    }
    auto transaction = Transaction::begin(out_dir, std::move(names));
    if (!transaction) {
      return fail(std::move(transaction).error());
    }
    transaction_.emplace(*std::move(transaction));
    return {};
  }

  Status write_inputs(const RecordedInputs* inputs) {
    auto written = inputs != nullptr ? write_test_data(*inputs, *transaction_)
                                     : Result<std::vector<ManifestFile>>();
    if (!written) {
      return fail(std::move(written).error());
    }
    test_data_ = *std::move(written);
    return {};
  }

  Status copy() {
    if (!pieces_) {
      building_ = start_building(builder_, *plan_, options_);
    }
    const auto kept = kept_parts(*plan_, *transaction_, job_, options_, meter_);
    auto journal = kept ? Journal::start(transaction_->staging(), job_, *kept) : fail(kept.error());
    if (!journal) {
      return fail(std::move(journal).error());
    }
    auto copied = copy_files(
        {*plan_, model_, checkpoint_, transaction_->data(), options_, *kept, *journal}, meter_);
    if (!copied) {
      return fail(std::move(copied).error());
    }
    copied_ = *std::move(copied);
    return check_partly_used_storages(*plan_, checkpoint_, thread_count(options_.threads));
  }

  Status write_model() {
    if (!pieces_) {
      Status built = building_.valid() ? keep(building_.get()) : build(copied_.sha1s);
      if (!built) {
        return built;
      }
    }
    const auto written = write_model_file({transaction_->staging(), plan_->model_name, *pieces_,
                                           model_.cut_tensors(), copied_.crcs, options_});
    return written ? transaction_->write_manifest(
                         builder_.manifest_for(*written, copied_, std::move(test_data_)))
                   : Status(fail(written.error()));
  }

  const SavePlan* plan_;  // the given one, or placed_
  std::optional<SavePlan> placed_;
  Model& model_;
  const Checkpoint& checkpoint_;
  const WriteOptions& options_;
  ModelBuilder builder_;
  ProgressMeter meter_;
  std::string job_;
  std::optional<Transaction> transaction_;
  std::vector<ManifestFile> test_data_;
  CopiedFiles copied_;
  std::optional<ModelPieces> pieces_;
  std::future<Result<ModelPieces>> building_;  // uses builder_ until it is done
};

}  // namespace

Result<StagedSave> write_plan(const SavePlan& plan, Model& model, const Checkpoint& checkpoint,
                              const std::filesystem::path& out_dir, const WriteOptions& options,
                              const RecordedInputs* inputs) {
  return PlanWriter(plan, model, checkpoint, options).write(out_dir, inputs);
}

}  // namespace onnx_external
