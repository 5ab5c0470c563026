#include "onnx_external/writer.h"

#include <algorithm>
#include <future>
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
      if (plan_.tensors[i].part) {
        manifest_.tensors[i].crc32 = copied.crcs[*plan_.tensors[i].part];
      }
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
                        ? checkpoint_.read(tensor.source_index, 0, bytes)
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

}  // namespace

Result<StagedSave> write_plan(const SavePlan& given_plan, Model& model,
                              const Checkpoint& checkpoint, const std::filesystem::path& out_dir,
                              const WriteOptions& options, const RecordedInputs* inputs) {
  ModelBuilder builder(given_plan, model, checkpoint);
  const bool is_inline = given_plan.layout == Layout::kInline;
  Result<ModelPieces> pieces;
  if (is_inline) {  // the model is the data file: its form comes first
    pieces = builder.build(options.inputs, {});
    if (!pieces) {
      return fail(std::move(pieces).error());
    }
  }
  const std::optional<SavePlan> placed =
      is_inline ? std::optional(placed_in(*pieces, given_plan)) : std::nullopt;
  const SavePlan& plan = placed ? *placed : given_plan;
  auto job = name_job(plan, model, checkpoint);
  if (!job) {
    return fail(std::move(job).error());
  }
  const bool resumes = options.resume == Resume::kYes;
  auto transaction =
      Transaction::begin(out_dir, {plan.model_name, plan.data_dir, options.sync, options.overwrite,
                                   plan.layout, plan.files, resumes ? *job : std::string()});
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
  auto building =
      is_inline ? std::future<Result<ModelPieces>>() : start_building(builder, plan, options);
  ProgressMeter meter(options.progress);
  const auto kept = kept_parts(plan, *transaction, *job, options, meter);
  auto journal = kept ? Journal::start(transaction->staging(), *job, *kept) : fail(kept.error());
  if (!journal) {
    return fail(std::move(journal).error());
  }
  auto copied =
      copy_files({plan, model, checkpoint, transaction->data(), options, *kept, *journal}, meter);
  if (!copied) {
    return fail(std::move(copied).error());
  }
  Status status = check_partly_used_storages(plan, checkpoint, thread_count(options.threads));
  if (status && !is_inline) {
    pieces = building.valid() ? building.get() : builder.build(options.inputs, copied->sha1s);
    status = pieces ? Status() : Status(fail(pieces.error()));
  }
  if (status) {
    const auto written = write_model_file({transaction->staging(), plan.model_name, *pieces,
                                           model.cut_tensors(), copied->crcs, options});
    status = written ? transaction->write_manifest(
                           builder.manifest_for(*written, *copied, std::move(test_data)))
                     : Status(fail(written.error()));
  }
  // From here on the sources are no longer needed.
  if (status) {
    status = checkpoint.check_unchanged();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return StagedSave(std::make_unique<StagedSave::State>(
      StagedSave::State{*std::move(transaction), std::move(copied->crcs), bytes_of(plan, *kept)}));
}

}  // namespace onnx_external
