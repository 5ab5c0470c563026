#include "save/recorded_crcs.h"

#include <fmt/format.h>

#include <string>

#include "base/text.h"
#include "base/try.h"
#include "onnx/model_access.h"

namespace onnx_external {
namespace {

std::string file_of(const PlannedTensor& tensor, const Model& model) {
  if (tensor.source == TensorSource::kModelExternal) {
    const ExternalTensor& external = model.external_tensors()[tensor.source_index];
    return (model.source_dir() / external.location).string();
  }
  const auto& file = ModelAccess::cuts(model).shared_file();
  return file ? file->name() : "the model";
}

}  // namespace

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
