#include "onnx_external/writer.h"

#include <future>
#include <map>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "save/journal.h"
#include "save/manifest.h"
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

  // The serialized model. `sha1s`: of each file of the plan, where checksums are recorded.
  Result<std::string> build(MatchedInputs inputs, const std::vector<std::string>& sha1s) {
    Status attached = attach(inputs, sha1s);
    return attached ? model_.serialize() : fail(std::move(attached).error());
  }

  // Requires: build() succeeded.
  std::string manifest_for(std::string_view model_text, const CopiedFiles& copied,
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
    Status status = read_planned(checkpoint_, tensor, 0, std::as_writable_bytes(std::span(raw)));
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

Result<CopiedFiles> write_data(const SavePlan& plan, const Model& model,
                               const Checkpoint& checkpoint, const Transaction& transaction,
                               std::string_view job, const WriteOptions& options,
                               ProgressMeter& meter) {
  const auto kept = kept_parts(plan, transaction, job, options, meter);
  auto journal = kept ? Journal::start(transaction.staging(), job, *kept) : fail(kept.error());
  if (!journal) {
    return fail(std::move(journal).error());
  }
  return copy_files({plan, model, checkpoint, transaction.data(), options, *kept, *journal}, meter);
}

}  // namespace

Result<StagedSave> write_plan(const SavePlan& plan, Model& model, const Checkpoint& checkpoint,
                              const std::filesystem::path& out_dir, const WriteOptions& options,
                              const RecordedInputs* inputs) {
  const bool links = plan.layout == Layout::kLink;
  if (links && options.checksum != Checksum::kNone) {
    return fail(ErrorCode::kInvalidArgument,
                "a checksum of whole files means reading them; leave it out with layout link");
  }
  // A save that links writes no data, so there is none to go on with.
  auto job = links ? Result<std::string>(std::string()) : name_job(plan, model, checkpoint);
  if (!job) {
    return fail(std::move(job).error());
  }
  const bool resumes = options.resume == Resume::kYes;
  auto transaction = Transaction::begin(
      out_dir, {plan.model_name, plan.data_dir, options.sync, options.overwrite, plan.layout,
                links ? std::vector<PlannedFile>() : plan.files, resumes ? *job : std::string()});
  if (!transaction) {
    return fail(std::move(transaction).error());
  }
  std::vector<ManifestFile> test_data;
  if (inputs != nullptr) {
    auto written = write_test_data(*inputs, *transaction);
    if (!written) {
      return fail(std::move(written).error());
    }
    test_data = *std::move(written);
  }
  ModelBuilder builder(plan, model, checkpoint);
  auto building = start_building(builder, model, options);
  ProgressMeter meter(options.progress);
  Result<CopiedFiles> copied;
  if (!links) {
    copied = write_data(plan, model, checkpoint, *transaction, *job, options, meter);
  }
  if (!copied) {
    return fail(std::move(copied).error());
  }
  Status status = check_partly_used_storages(plan, checkpoint, thread_count(options.threads));
  if (status) {
    const auto text =
        building.valid() ? building.get() : builder.build(options.inputs, copied->sha1s);
    status = text ? transaction->write_model(
                        *text, builder.manifest_for(*text, *copied, std::move(test_data)))
                  : Status(fail(text.error()));
  }
  // From here on the sources are no longer needed.
  if (status) {
    status = checkpoint.check_unchanged();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return StagedSave(std::make_unique<StagedSave::State>(
      StagedSave::State{*std::move(transaction), std::move(copied->crcs), copied->bytes_kept}));
}

}  // namespace onnx_external
