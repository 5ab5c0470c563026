#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

// Equal for tensors with the same bytes: the same range, or the same view of the same storage.
using BytesKey = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, DType, Shape, Shape>;

BytesKey bytes_key(const Checkpoint& checkpoint, std::size_t index) {
  const TensorView& view = checkpoint.tensors()[index];
  const bool contiguous = is_contiguous(view.shape, view.strides);
  return {view.storage,
          view.storage_offset,
          checkpoint.nbytes(index),
          view.dtype,
          contiguous ? Shape() : view.shape,
          contiguous ? Shape() : view.strides};
}

}  // namespace

Result<MappingKeys> mapping_keys(const Checkpoint& checkpoint) {
  MappingKeys out;
  out.tied_names = checkpoint.tied_names();
  std::map<BytesKey, std::uint64_t> ids;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorView& view = checkpoint.tensors()[i];
    auto shape = onnx_shape(view.dtype, view.shape);
    if (!shape) {
      return fail_in(quote(view.name), std::move(shape).error());
    }
    MappingKey key;
    key.name = view.name;
    key.dtype = view.dtype;
    key.shape = *std::move(shape);
    key.argument = checkpoint.argument_of(i);
    if (checkpoint.nbytes(i) > 0) {
      key.bytes_id = ids.try_emplace(bytes_key(checkpoint, i), ids.size()).first->second;
    }
    out.keys.push_back(std::move(key));
  }
  return out;
}

}  // namespace onnx_external
