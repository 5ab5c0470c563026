#include "checkpoint/storage/bytes_ids.h"

#include "checkpoint/storage/element_reader.h"

namespace onnx_external {
namespace {

// Down to single bytes, so that the size of an element does not matter.
std::vector<StridedDim> byte_dims(const TensorView& view) {
  const std::uint64_t unit = byte_size(view.dtype);
  std::vector<StridedDim> dims = merged_dims(view);
  for (StridedDim& dim : dims) {
    dim.stride *= unit;
  }
  if (!dims.empty() && dims.back().stride == unit) {
    dims.back() = {dims.back().size * unit, 1};
  } else {
    dims.push_back({unit, 1});
  }
  return dims;
}

}  // namespace

std::optional<std::size_t> BytesIds::id_of(const TensorView& view, std::optional<DType> cast_to) {
  const std::uint64_t nbytes = *contiguous_nbytes(view.dtype, view.shape);
  if (nbytes == 0) {
    return std::nullopt;
  }
  if (cast_to == view.dtype) {
    cast_to.reset();
  }
  const Storage& storage = storages_[view.storage];
  const bool in_file = storage.compression == Compression::kNone && !storage.computed;
  const Range range(in_file, in_file ? storage.file : view.storage,
                    view.storage_offset + (in_file ? storage.offset : 0), nbytes);
  const std::uint32_t unit = needs_swap(storage, view.dtype) ? swap_unit(view.dtype) : 1;
  const std::size_t next = count();
  if (unit == 1 && !view.conj && !view.neg && !cast_to && is_contiguous(view.shape, view.strides)) {
    return ranges_.emplace_hint(ranges_.end(), range, next)->second;
  }
  const bool by_value = view.conj || view.neg || cast_to;
  return forms_
      .try_emplace({.range = range,
                    .dims = byte_dims(view),
                    .swap_unit = unit,
                    .dtype = by_value ? std::optional(view.dtype) : std::nullopt,
                    .conj = view.conj,
                    .neg = view.neg,
                    .cast_to = cast_to},
                   next)
      .first->second;
}

}  // namespace onnx_external
