#include "save/model_builder.h"

#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/file.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/matrix_nodes.h"
#include "onnx/model_edits.h"
#include "onnx/model_segments.h"
#include "onnx/model_source.h"
#include "save/planned_bytes.h"
#include "save/recorded_crcs.h"

namespace onnx_external {

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

}  // namespace onnx_external
