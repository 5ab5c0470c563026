#include "save/own_weights.h"

#include <optional>
#include <string>

#include "base/text.h"
#include "base/try.h"
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

}  // namespace

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

}  // namespace onnx_external
