// Models in memory whose external data is in no file.
#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/loose_checkpoint.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/model_access.h"
#include "onnx_external/loose_tensors.h"
#include "onnx_external/save_external.h"

namespace onnx_external {
namespace {

// Other shapes are the model's affair; other types would be a mistake, but for plain bytes.
Status check_entry(const ExternalTensor& entry, const LooseTensor& tensor) {
  const auto nbytes = contiguous_nbytes(tensor.info.dtype, tensor.info.shape);
  const bool has_type =
      tensor.info.dtype == DType::kUInt8 || onnx_data_type(tensor.info.dtype) == entry.data_type;
  if (has_type && nbytes && *nbytes == entry.length) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("initializer {}: {} {} takes {} bytes, but loose tensor {}, {} {}, is "
                          "another type or size",
                          quote(entry.name), onnx_type_name(entry.data_type),
                          shape_text(entry.dims), entry.length, entry.offset,
                          torch_name(tensor.info.dtype), shape_text(tensor.info.shape)));
}

Status check_entries(const Model& model, std::vector<LooseTensor>& tensors) {
  for (const ExternalTensor& entry : model.external_tensors()) {
    if (entry.location != kLooseLocation) {
      continue;
    }
    if (entry.offset >= tensors.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("initializer {}: refers to loose tensor {}, but {} are given",
                              quote(entry.name), entry.offset, tensors.size()));
    }
    LooseTensor& tensor = tensors[static_cast<std::size_t>(entry.offset)];
    TRY(check_entry(entry, tensor));
    if (tensor.info.name.empty()) {
      tensor.info.name = entry.name;
    }
  }
  return {};
}

}  // namespace

Result<Model> Model::from_proto(onnx::ModelProto proto, std::filesystem::path source_dir,
                                std::vector<LooseTensor> tensors) {
  return from_proto(std::move(proto), std::move(source_dir), std::move(tensors), LooseOptions());
}

Result<Model> Model::from_proto(onnx::ModelProto proto, std::filesystem::path source_dir,
                                std::vector<LooseTensor> tensors, const LooseOptions& options) {
  std::vector<FromMemory> given;
  given.push_back({std::move(proto), std::move(source_dir)});
  TRY_ASSIGN(auto models, from_protos(std::move(given), std::move(tensors), options));
  return std::move(models.front());
}

Result<std::vector<Model>> Model::from_protos(std::vector<FromMemory> given,
                                              std::vector<LooseTensor> tensors,
                                              const LooseOptions& options) {
  std::vector<Model> models;
  for (FromMemory& one : given) {
    TRY_ASSIGN(auto model, from_proto(std::move(one.proto), std::move(one.source_dir)));
    TRY(check_entries(model, tensors));
    models.push_back(std::move(model));
  }
  TRY_ASSIGN(auto loose, loose_checkpoint(std::move(tensors), options, LooseNames::kAny));
  const auto shared = std::make_shared<const Checkpoint>(std::move(loose));
  for (Model& model : models) {
    ModelAccess::set_loose_tensors(model, shared);
  }
  return models;
}

Checkpoint with_tensors_of(const Model& model, Checkpoint checkpoint) {
  return with_tensors_of(std::span(&model, 1), std::move(checkpoint));
}

Checkpoint with_tensors_of(std::span<const Model> models, Checkpoint checkpoint) {
  for (const Checkpoint* const loose : ModelAccess::loose_tensors(models)) {
    CheckpointAccess::append_given(checkpoint, *loose);
  }
  return checkpoint;
}

}  // namespace onnx_external
