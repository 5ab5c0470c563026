#include "save/model_builder.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/copy_range.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/progress_meter.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/matrix_nodes.h"
#include "onnx/model_edits.h"
#include "onnx/model_segments.h"
#include "onnx/model_source.h"
#include "save/planned_bytes.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

bool is_deferred(const ModelSegment& segment) {
  return segment.from == ModelSegment::From::kDeferred;
}

class ModelFileWriter {
 public:
  ModelFileWriter(const ModelFileJob& job, OutputFile& file)
      : job_(job), file_(file), meter_(job.options.progress) {}

  Result<std::uint32_t> write() {
    meter_.begin(Phase::kCopy, bytes_from_model());
    for (const ModelSegment& segment : job_.segments.segments) {
      TRY(write_segment(segment));
    }
    if (bytes_from_model() > 0) {
      TRY(job_.cuts.file().check_unchanged());
      TRY(meter_.finish());
    }
    return crc_;
  }

 private:
  std::uint64_t bytes_from_model() const {
    std::uint64_t bytes = 0;
    for (const ModelSegment& segment : job_.segments.segments) {
      bytes += segment.from == ModelSegment::From::kModelFile ? segment.bytes : 0;
    }
    return bytes;
  }

  Status write_segment(const ModelSegment& segment) {
    Status status;
    std::uint32_t crc = 0;
    if (is_deferred(segment)) {
      crc = job_.deferred_crcs[segment.number];
    } else {
      Crc32 digest;
      status = segment.from == ModelSegment::From::kText ? write_text(segment, digest)
                                                         : copy_from_model(segment, digest);
      crc = digest.value();
    }
    crc_ = crc32_concat(crc_, crc, segment.bytes);
    position_ += segment.bytes;
    return status;
  }

  Status write_text(const ModelSegment& segment, Crc32& crc) {
    const auto text = std::string_view(job_.segments.text)
                          .substr(static_cast<std::size_t>(segment.offset),
                                  static_cast<std::size_t>(segment.bytes));
    crc.update(std::as_bytes(std::span(text)));
    return file_.write(position_, std::as_bytes(std::span(text)));
  }

  Status copy_from_model(const ModelSegment& segment, Crc32& crc) {
    const StepFn step = [this](std::uint64_t bytes) { return meter_.add(bytes); };
    return copier_.copy_with_crc(
        {job_.cuts.file(), segment.offset, segment.bytes, file_, position_, step}, crc);
  }

  const ModelFileJob& job_;
  OutputFile& file_;
  ProgressMeter meter_;
  RangeCopier copier_;
  std::uint64_t position_ = 0;
  std::uint32_t crc_ = 0;
};

Result<OutputFile> open_model_file(const ModelFileJob& job) {
  const auto& segments = job.segments.segments;
  if (std::any_of(segments.begin(), segments.end(), is_deferred)) {
    return OutputFile::reopen(job.folder, job.name);
  }
  return OutputFile::create(job.folder, job.name, job.segments.bytes);
}

}  // namespace

Result<ModelSegments> ModelBuilder::build(MatchedInputs inputs,
                                          const std::vector<std::string>& sha1s) {
  Placement placed;
  placed.attachments.reserve(plan_.tensors.size());
  for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
    if (is_own(i)) {
      TRY_ASSIGN(auto data, data_of(i, sha1s));
      place(plan_.tensors[i], std::move(data), placed);
    }
  }
  if (const auto& matrices = plan_.models[model_index_].matrices) {
    TRY(replace_matrices(model_, *matrices, placed.edits));
  }
  TRY(attach(model_, placed.attachments, inputs, placed.edits));
  remove_parent_note(model_, placed.edits);
  return model_segments(model_, std::move(placed.edits));
}

Result<TensorData> ModelBuilder::data_of(std::size_t number,
                                         const std::vector<std::string>& sha1s) {
  const PlannedTensor& tensor = plan_.tensors[number];
  if (!tensor.range) {
    TRY_ASSIGN(auto raw, read_inline(tensor));
    Crc32 crc;
    crc.update(std::as_bytes(std::span(raw)));
    inline_crcs_[number] = crc.value();
    TRY(check_recorded_crc(tensor, model_, crc.value()));
    return TensorData(std::move(raw));
  }
  if (plan_.layout == Layout::kInline) {
    return DeferredBytes{*tensor.range, tensor.nbytes};
  }
  const DataRange& range = plan_.ranges[*tensor.range];
  return ExternalRef{plan_.location(range.file), range.offset, tensor.nbytes,
                     range.file < sha1s.size() ? sha1s[range.file] : std::string()};
}

Result<std::string> ModelBuilder::read_inline(const PlannedTensor& tensor) const {
  std::string raw(static_cast<std::size_t>(tensor.nbytes), '\0');
  const auto bytes = std::as_writable_bytes(std::span(raw));
  if (tensor.source == TensorSource::kCheckpoint) {
    TRY_ASSIGN(const auto held, hold_planned(checkpoint_, tensor));
    TRY(read_planned(checkpoint_, tensor, 0, bytes));
    return raw;
  }
  const ExternalTensor& external = model_.external_tensors()[tensor.source_index];
  TRY_ASSIGN(const auto file, open_external(model_, external));
  TRY(file->read(external.offset, bytes));
  return raw;
}

void ModelBuilder::place(const PlannedTensor& tensor, TensorData data, Placement& placed) const {
  if (tensor.source == TensorSource::kModelExternal) {
    relocate(model_, tensor.source_index, data, placed.edits);
  } else if (tensor.existing_index) {
    relocate(model_, *tensor.existing_index, data, placed.edits);
  } else if (tensor.source == TensorSource::kModelInline) {
    externalize(model_, tensor.source_index, std::get<ExternalRef>(data), placed.edits);
  } else {
    placed.attachments.push_back({tensor.slot, tensor.slot == kNoSlot ? tensor.name : std::string(),
                                  tensor.data_type, tensor.dims, std::move(data)});
  }
}

std::string ModelBuilder::manifest_for(std::span<const ModelIdentity> written,
                                       std::span<const std::uint32_t> crcs,
                                       const std::map<std::size_t, Overflow>& overflows) const {
  Manifest manifest;
  manifest.options = plan_.models[model_index_].mapping_options;
  manifest.linked = linked_files();
  manifest.model_file = name();
  manifest.model_bytes = written[model_index_].bytes;
  manifest.model_crc32 = written[model_index_].crc32;
  for (std::size_t i = 0; !plan_.is_of_one() && i < plan_.models.size(); ++i) {
    manifest.set.push_back({plan_.models[i].name, written[i].bytes, written[i].crc32});
  }
  ManifestLines lines(plan_.tensors.size());
  for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
    if (is_own(i)) {
      ManifestTensor record = record_of(i, crcs);
      if (const auto overflow = overflows.find(i); overflow != overflows.end()) {
        record.overflowed = overflow->second.values;
      }
      lines.add(record);
    }
  }
  return manifest_text(manifest, std::move(lines));
}

std::vector<LinkedFile> ModelBuilder::linked_files() const {
  std::map<std::string, std::uint64_t> files;
  for (std::size_t i = 0; plan_.layout == Layout::kLink && i < plan_.tensors.size(); ++i) {
    if (is_own(i) && plan_.tensors[i].range && plan_.is_linked(*plan_.tensors[i].range)) {
      const PlannedFile& file = plan_.files[plan_.ranges[*plan_.tensors[i].range].file];
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

ManifestTensor ModelBuilder::record_of(std::size_t number,
                                       std::span<const std::uint32_t> crcs) const {
  const PlannedTensor& tensor = plan_.tensors[number];
  ManifestTensor record;
  record.slot = tensor.name;
  if (tensor.source == TensorSource::kModelExternal || tensor.existing_index) {
    const ExternalTensor& given =
        model_.external_tensors()[tensor.existing_index.value_or(tensor.source_index)];
    record.graph = given.graph;
    record.place = given.place;
  } else if (tensor.source == TensorSource::kModelInline) {
    const InlineTensor& given = model_.inline_tensors()[tensor.source_index];
    record.graph = given.graph;
    record.place = given.place;
  } else if (tensor.slot != kNoSlot) {
    record.graph = model_.facts().slots[tensor.slot].graph;
  }
  if (tensor.range && plan_.layout != Layout::kInline) {
    const DataRange& range = plan_.ranges[*tensor.range];
    const bool is_beside = !plan_.is_of_one();  // the manifest is
    record.file = is_beside ? plan_.location(range.file) : plan_.files[range.file].name;
    record.offset = range.offset;
  }
  record.crc32 = crc_of(number, crcs);
  record.key = tensor.key;
  record.rule = tensor.rule ? std::string(rule_name(*tensor.rule)) : std::string();
  record.recipe = tensor.recipe;
  record.packed = tensor.packed;
  record.length = tensor.nbytes;
  record.data_type = tensor.data_type;
  record.dims = tensor.dims;
  return record;
}

std::optional<std::uint32_t> ModelBuilder::crc_of(std::size_t number,
                                                  std::span<const std::uint32_t> crcs) const {
  const PlannedTensor& tensor = plan_.tensors[number];
  if (!tensor.range) {
    return inline_crcs_.at(number);
  }
  if (!plan_.is_linked(*tensor.range)) {
    return crcs[*tensor.range];
  }
  // Nothing read the bytes: only what was recorded before is known of them.
  return tensor.source == TensorSource::kCheckpoint ? recorded_crc_of(checkpoint_, tensor)
                                                    : tensor.recorded_crc;
}

std::vector<std::uint64_t> deferred_offsets(const ModelSegments& segments) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t position = 0;
  for (const ModelSegment& segment : segments.segments) {
    if (is_deferred(segment)) {
      offsets.resize(std::max<std::size_t>(offsets.size(), segment.number + 1));
      offsets[segment.number] = position;
    }
    position += segment.bytes;
  }
  return offsets;
}

Result<ModelIdentity> write_model_file(const ModelFileJob& job) {
  TRY_ASSIGN(auto file, open_model_file(job));
  TRY_ASSIGN(const auto crc, ModelFileWriter(job, file).write());
  TRY(job.options.sync == Sync::kFiles ? file.sync() : Status());
  TRY(file.close());
  return ModelIdentity{job.segments.bytes, crc};
}

}  // namespace onnx_external
