
#include "save/planned_bytes.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/inline_data.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"

namespace onnx_external {
namespace {

Result<RangeSource> external_source(const PlannedTensor& tensor, const Model& model) {
  const ExternalTensor& external = model.external_tensors()[tensor.source_index];
  TRY_ASSIGN(auto source, open_external(model, external));
  return RangeSource{std::move(source), external.offset, std::nullopt};
}

Result<RangeSource> inline_source(const PlannedTensor& tensor, const Model& model) {
  const CutTensors& cuts = ModelAccess::cuts(model);
  const auto range = inline_range(model, tensor.source_index);
  if (!range) {
    return RangeSource{};
  }
  if (range->length != tensor.nbytes) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: tensor {}: it contains {} bytes, but its type and dims need {}",
                            cuts.file().name(), quote(tensor.name), range->length, tensor.nbytes));
  }
  return RangeSource{cuts.shared_file(), range->offset, std::nullopt};
}

std::string file_of(const PlannedTensor& tensor, const Model& model) {
  if (tensor.source == TensorSource::kModelExternal) {
    const ExternalTensor& external = model.external_tensors()[tensor.source_index];
    return (model.source_dir() / external.location).string();
  }
  const auto& file = ModelAccess::cuts(model).shared_file();
  return file ? file->name() : "the model";
}

}  // namespace

Result<RangeSource> source_of(const PlannedTensor& tensor, const SourceModels& models,
                              const Checkpoint& checkpoint) {
  if (tensor.source == TensorSource::kModelExternal) {
    return external_source(tensor, models.of(tensor));
  }
  if (tensor.source == TensorSource::kModelInline) {
    return inline_source(tensor, models.of(tensor));
  }
  const auto range = planned_range(checkpoint, tensor);
  return range ? RangeSource{CheckpointAccess::files(checkpoint)[range->file], range->offset,
                             recorded_crc_of(checkpoint, tensor)}
               : RangeSource{};
}

Result<ReadBytes> planned_reader(const PlannedTensor& tensor, const SourceModels& models,
                                 const Checkpoint& checkpoint) {
  if (tensor.source == TensorSource::kCheckpoint) {
    return [&](std::uint64_t at, std::span<std::byte> out) {
      return read_planned(checkpoint, tensor, at, out);
    };
  }
  TRY_ASSIGN(auto source, source_of(tensor, models, checkpoint));
  if (source.file) {
    return [source, nbytes = tensor.nbytes](std::uint64_t at, std::span<std::byte> out) -> Status {
      TRY(source.file->read(source.offset + at, out));
      return at + out.size() == nbytes ? source.file->check_unchanged() : Status();
    };
  }
  TRY_ASSIGN_IN("tensor " + quote(tensor.name), auto opened,
                InlineReader::open(models.of(tensor), tensor.source_index));
  return [reader = std::make_shared<InlineReader>(std::move(opened))](
             std::uint64_t, std::span<std::byte> out) { return reader->read(out); };
}

Status check_recorded_crc(const PlannedTensor& tensor, const SourceModels& models,
                          std::uint32_t crc32) {
  if (!tensor.recorded_crc || *tensor.recorded_crc == crc32) {
    return {};
  }
  return fail(ErrorCode::kCorrupt,
              fmt::format("{}: tensor {}: its CRC-32 is {}, but the model's manifest recorded {}: "
                          "the bytes were damaged or changed after the model was saved; restore "
                          "the file, or save from the checkpoint again",
                          file_of(tensor, models.of(tensor)), quote(tensor.name), hex_text(crc32),
                          hex_text(*tensor.recorded_crc)));
}

Status check_recorded_crcs(const SavePlan& plan, const SourceModels& models,
                           std::span<const std::uint32_t> crcs) {
  for (const PlannedTensor& tensor : plan.tensors) {
    const bool is_written = tensor.range && *tensor.range < crcs.size();  // others are linked
    TRY(is_written ? check_recorded_crc(tensor, models, crcs[*tensor.range]) : Status());
  }
  return {};
}

}  // namespace onnx_external
