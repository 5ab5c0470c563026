#include "save/own_weights.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/provided_checkpoint.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/graph_facts.h"
#include "onnx/inline_data.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"

namespace onnx_external {
namespace {

// Returns nullopt for tensors that are not float matrices.
std::optional<TensorInfo> info_of(const std::string& name, std::int32_t data_type,
                                  const Shape& dims) {
  const auto dtype = dtype_from_onnx(data_type);
  return dtype && can_cast_from(*dtype) && dims.size() >= 2
             ? std::optional(TensorInfo{name, *dtype, dims})
             : std::nullopt;
}

// Appends the weights of one model.
class OwnTensors {
 public:
  OwnTensors(const Model& model, std::vector<ProvidedTensor>& given)
      : model_(model), given_(given), in_memory_(given.size()) {}

  Status add_external(std::size_t index) {
    const ExternalTensor& external = model_.external_tensors()[index];
    const auto info = info_of(external.name, external.data_type, external.dims);
    if (!info) {
      return {};
    }
    if (!is_in_memory(model_, external)) {
      TRY(open_external(model_, external));  // checks that the location is safe
      return add(OwnData::kExternal, index,
                 {.info = *info,
                  .storage = FileBytes{model_.source_dir() / external.location, external.offset,
                                       external.length}});
    }
    if (external.offset >= in_memory_) {
      return {};  // reported where the tensors are given
    }
    ProvidedTensor typed = given_[external.offset];  // which may have plain bytes for a type
    typed.info = *info;
    const bool is_plain = given_[external.offset].info.dtype == DType::kUInt8;
    if (is_plain && !typed.strides.empty()) {
      return {};
    }
    return add(OwnData::kExternal, index, std::move(typed));
  }

  Status add_inline(std::size_t index) {
    const InlineTensor& tensor = model_.inline_tensors()[index];
    const auto info = info_of(tensor.name, tensor.data_type, tensor.dims);
    if (!info || tensor.in_training || tensor.length == 0) {
      return {};
    }
    const auto range = inline_range(model_, index);
    if (range && !model_.path().empty()) {
      return add(
          OwnData::kInline, index,
          {.info = *info, .storage = FileBytes{model_.path(), range->offset, range->length}});
    }
    const auto make = [model = model_, index](std::span<std::byte> out) -> Status {
      TRY_ASSIGN(auto reader, InlineReader::open(model, index));
      return reader.read(out);
    };
    return add(OwnData::kInline, index,
               {.info = *info, .storage = LazyBytes{.size = tensor.length, .make = make}});
  }

  [[nodiscard]] OwnWeights::value_type places() && { return std::move(places_); }

 private:
  Status add(OwnData kind, std::size_t index, ProvidedTensor tensor) {
    places_.emplace(std::pair(kind, index), given_.size());
    given_.push_back(std::move(tensor));
    return {};
  }

  const Model& model_;
  std::vector<ProvidedTensor>& given_;
  std::size_t in_memory_;
  OwnWeights::value_type places_;
};

// Other shapes are the model's affair; other types would be a mistake, but for plain bytes.
Status check_tensor(const ExternalTensor& entry, const TensorView& tensor) {
  const auto nbytes = contiguous_nbytes(tensor.dtype, tensor.shape);
  const bool has_type =
      tensor.dtype == DType::kUInt8 || onnx_data_type(tensor.dtype) == entry.data_type;
  if (has_type && nbytes && *nbytes == entry.length) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "{} {} takes {} bytes, but tensor {} in memory, {} {}, has a different type or size",
          onnx_type_name(entry.data_type), shape_text(entry.dims), entry.length, entry.offset,
          torch_name(tensor.dtype), shape_text(tensor.shape)));
}

Result<OwnWeights> append_own_weights(std::span<const Model> models,
                                      std::vector<ProvidedTensor>& given) {
  OwnWeights own;
  for (const Model& model : models) {
    OwnTensors tensors(model, given);
    for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
      TRY_IN("initializer " + quote(model.external_tensors()[i].name), tensors.add_external(i));
    }
    for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
      TRY_IN("tensor " + quote(model.inline_tensors()[i].name), tensors.add_inline(i));
    }
    own.push_back(std::move(tensors).places());
  }
  return own;
}

Status check_data_in_memory(const Model& model, const Checkpoint& checkpoint) {
  for (const ExternalTensor& entry : model.external_tensors()) {
    if (is_in_memory(model, entry)) {
      const std::string where = "initializer " + quote(entry.name);
      TRY_ASSIGN_IN(where, const auto tensor,
                    CheckpointAccess::given_tensor(checkpoint, entry.offset));
      TRY_IN(where, check_tensor(entry, checkpoint.tensors()[tensor]));
    }
  }
  return {};
}

}  // namespace

Result<OwnWeights> add_model_data(std::span<const Model> models,
                                  std::vector<ProvidedTensor> tensors, bool quantizes,
                                  Checkpoint& checkpoint) {
  for (const Model& model : models) {
    for (const ExternalTensor& entry : model.external_tensors()) {
      if (is_in_memory(model, entry) && entry.offset < tensors.size() &&
          tensors[entry.offset].info.name.empty()) {
        tensors[entry.offset].info.name = entry.name;
      }
    }
  }
  OwnWeights own;
  if (quantizes) {
    TRY_ASSIGN(own, append_own_weights(models, tensors));
  }
  TRY_ASSIGN(const auto given, provided_checkpoint(std::move(tensors), {}, ProvidedNames::kAny));
  CheckpointAccess::append_existing(checkpoint, given);
  for (const Model& model : models) {
    TRY(check_data_in_memory(model, checkpoint));
  }
  return own;
}

}  // namespace onnx_external
