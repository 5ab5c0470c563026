#include "jobs/plan_models.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/derivation_json.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"
#include "onnx_external/save_external.h"
#include "save/link.h"
#include "save/make_plan.h"
#include "save/output_folder.h"
#include "save/plan_checks.h"
#include "verify/recorded_bytes.h"

namespace onnx_external {
namespace {

// Feeds a hash with numbers in 7 bits per byte (most are small), and with strings and lists
// preceded by their lengths.
class JobHasher {
 public:
  void add(std::string_view text) {
    add(text.size());
    pending_ += text;
    if (pending_.size() > kPendingBytes) {
      flush();
    }
  }
  void add(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7U) {
      pending_ += static_cast<char>(number | 0x80U);
    }
    pending_ += static_cast<char>(number);
  }
  void add(std::span<const std::int64_t> numbers) {
    add(numbers.size());
    for (const std::int64_t number : numbers) {
      add(static_cast<std::uint64_t>(number));
    }
  }
  std::string hex() {
    flush();
    return sha_.hex();
  }

 private:
  static constexpr std::size_t kPendingBytes = std::size_t{64} << 10;
  void flush() {
    sha_.update(std::as_bytes(std::span(pending_)));
    pending_.clear();
  }
  Sha sha_{Sha::Kind::kSha256};
  std::string pending_;
};

void add_plan(const SavePlan& plan, JobHasher& hasher) {
  hasher.add(plan.data_dir);
  hasher.add(plan.models.size());
  for (const PlannedModel& model : plan.models) {
    hasher.add(model.name);
    hasher.add(derived_json(model.mapping_options.derived, ""));
  }
  hasher.add(static_cast<std::uint64_t>(plan.layout));
  hasher.add(plan.files.size());
  for (const PlannedFile& file : plan.files) {
    hasher.add(file.name);
    hasher.add(file.bytes);
  }
  hasher.add(plan.ranges.size());
  for (const DataRange& range : plan.ranges) {
    hasher.add(range.bytes);
    hasher.add(range.file);
    hasher.add(range.offset);
  }
}

void add_view(const Checkpoint& checkpoint, const PlannedTensor& tensor, JobHasher& hasher) {
  const DerivedView derived = planned_view(checkpoint, tensor);
  const TensorView& view = *derived;
  const Storage& storage = checkpoint.storages()[view.storage];
  hasher.add(view.name);
  hasher.add(torch_name(view.dtype));
  hasher.add(view.shape);
  hasher.add(view.strides);
  hasher.add(view.storage_offset);
  hasher.add((view.conj ? 2U : 0U) + (view.neg ? 1U : 0U));
  hasher.add(storage.file);
  hasher.add(storage.offset);
  hasher.add(storage.stored_bytes);
  hasher.add(storage.bytes);
}

Status add_external(const Model& model, std::size_t index, JobHasher& hasher) {
  const ExternalTensor& external = model.external_tensors()[index];
  TRY_ASSIGN(const auto file, open_external(model, external));
  TRY_ASSIGN(const auto stamp, file->stamp());
  hasher.add(external.location);
  hasher.add(external.offset);
  hasher.add(external.length);
  hasher.add(stamp);
  return {};
}

// The bytes are in the model's file. A model from memory has no file, and its save is never
// resumed, because its placeholders begin with random bytes.
Status add_inline(const Model& model, std::size_t index, JobHasher& hasher) {
  const CutTensors& cuts = ModelAccess::cuts(model);
  const auto& file = cuts.shared_file();
  TRY_ASSIGN(const auto stamp, file ? file->stamp() : cuts.placeholders().text(0));
  hasher.add(index);
  hasher.add(stamp);
  return {};
}

Status add_source(const PlannedTensor& tensor, const SourceModels& models,
                  const Checkpoint& checkpoint, JobHasher& hasher) {
  switch (tensor.source) {
    case TensorSource::kCheckpoint:
      add_view(checkpoint, tensor, hasher);
      return {};
    case TensorSource::kModelExternal:
      return add_external(models.of(tensor), tensor.source_index, hasher);
    case TensorSource::kModelInline:
      break;
  }
  return add_inline(models.of(tensor), tensor.source_index, hasher);
}

std::uint64_t hole_bytes(const SourceFile& file, std::uint64_t offset, std::uint64_t end) {
  std::uint64_t bytes = 0;
  while (offset < end) {
    const FileRun run = next_run(file, offset, end);
    bytes += run.is_hole ? run.bytes : 0;
    offset += run.bytes;
  }
  return bytes;
}

// Tensors that are produced on demand exist only while they are written, so Dedup::kContent cannot
// compare them beforehand.
Status check_made_tensors(const SavePlan& plan, const Checkpoint& checkpoint) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (kind_of_source(checkpoint, tensor) == StorageKind::kMade) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor " + quote(tensor.name) +
                      ": its bytes are produced once, when they are written, but the search for "
                      "equal bytes reads them earlier; leave out the search for equal bytes, or "
                      "pass the tensor in memory");
    }
  }
  return {};
}

// The steps after the layout, when each tensor has a range: limits, links, deduplication and
// recorded CRCs.
Result<SavePlan> complete(SavePlan plan, const SourceModels& models, const Checkpoint& checkpoint,
                          const std::filesystem::path& folder, const PlanOptions& options,
                          const WriteOptions& write, const OwnWeights& own) {
  TRY(check_expansion(plan, models, options.max_expand));
  if (options.dedup == Dedup::kContent) {
    TRY(check_made_tensors(plan, checkpoint));
    TRY_ASSIGN(plan, merge_equal_bytes(std::move(plan), models, checkpoint, options, write.threads,
                                       write.progress));
  }
  TRY(note_recorded_crcs(models, plan));
  if (options.quantize) {
    TRY(quantize_plan(models, checkpoint, options, write.inputs, own, plan));
  }
  if (options.layout == Layout::kLink && options.quantize) {
    TRY_ASSIGN(plan, link_or_write(std::move(plan), models, checkpoint, options));
  }
  if (options.layout == Layout::kLink) {
    TRY_ASSIGN(plan, link_files(std::move(plan), models, checkpoint, folder));
  }
  return plan;
}

}  // namespace

Result<std::string> name_job(const SavePlan& plan, const SourceModels& models,
                             const Checkpoint& checkpoint) {
  JobHasher hasher;
  add_plan(plan, hasher);
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    TRY_ASSIGN(const auto stamp, file->stamp());
    hasher.add(stamp);
  }
  const std::size_t written = plan.written_ranges();
  for (std::size_t i = 0; i < written; ++i) {
    const PlannedTensor& tensor = plan.tensors[plan.ranges[i].source_tensor];
    hasher.add(static_cast<std::uint64_t>(tensor.source));
    hasher.add(static_cast<std::uint64_t>(tensor.data_type));
    if (tensor.packed) {
      hasher.add(scheme_text(tensor.packed->scheme));
      hasher.add(static_cast<std::uint64_t>(tensor.packed->part));
    }
    TRY(add_source(tensor, models, checkpoint, hasher));
  }
  return hasher.hex();
}

void note_holes(const Checkpoint& checkpoint, SavePlan& plan) {
  std::vector<bool> has_holes;
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    has_holes.push_back(may_have_holes(*file));
  }
  const bool any = std::find(has_holes.begin(), has_holes.end(), true) != has_holes.end();
  const std::size_t count = any && plan.layout != Layout::kInline ? plan.written_ranges() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const DataRange& range = plan.ranges[i];
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source != TensorSource::kCheckpoint || range.bytes < kMinHoleBytes) {
      continue;
    }
    const auto source = planned_range(checkpoint, tensor);
    if (!source || !has_holes[source->file]) {
      continue;
    }
    plan.files[range.file].hole_bytes +=
        hole_bytes(*CheckpointAccess::files(checkpoint)[source->file], source->offset,
                   source->offset + range.bytes);
  }
}

std::string graph_name(const Model& model) {
  return model.path().empty() ? "the given graph" : model.path().string();
}

Result<SavePlan> plan_models(std::span<const Model> models, std::span<const std::string> names,
                             const Checkpoint& checkpoint, std::span<const Mapping> mappings,
                             const SaveTarget& target, const PlanOptions& options,
                             const WriteOptions& write, const OwnWeights& own) {
  const auto name_of = [&](std::size_t i) {
    return models.size() == 1 ? graph_name(models[i]) : names[i];
  };
  for (std::size_t i = 0; i < models.size(); ++i) {
    TRY_IN(name_of(i), check_complete(models[i], mappings[i]));
  }
  TRY_ASSIGN(auto plan, make_plan(models, names, checkpoint, mappings, options, target.data_dir));
  for (std::uint32_t i = 0; i < models.size(); ++i) {
    TRY_IN(name_of(i), check_shapes(models[i], i, plan.tensors));
  }
  return complete(std::move(plan), models, checkpoint, target.folder, options, write, own);
}

Status note_sources(std::span<const Model> models, const Checkpoint& checkpoint,
                    const WriteOptions& write, SavePlan& plan) {
  // Processes of a team write into shared files, without holes.
  if (write.team == nullptr) {
    note_holes(checkpoint, plan);
  }
  TRY_ASSIGN(plan.job, name_job(plan, models, checkpoint));
  return {};
}

Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const SaveTarget& target, const PlanOptions& options,
                           const WriteOptions& write) {
  TRY(check_option_rules(options, write, mapping.options.casts));
  SaveTarget chosen = target;
  TRY_ASSIGN(chosen.data_dir,
             choose_data_dir(target.folder, target.model_name, target.data_dir, write.overwrite,
                             options.written_layout(), options.data_name));
  TRY_ASSIGN(auto plan, plan_models({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1},
                                    chosen, options, write, {}));
  TRY(note_sources({&model, 1}, checkpoint, write, plan));
  return plan;
}

}  // namespace onnx_external
