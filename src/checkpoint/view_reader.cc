#include "checkpoint/view_reader.h"

#include <cstring>
#include <utility>

#include "tensor/view_bits.h"
#include "tensor/whole_elements.h"

namespace onnx_external {
namespace {

template <typename T>
void swap_all(std::span<std::byte> bytes, T (*swap)(T)) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    value = swap(value);
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

void swap_bytes(std::span<std::byte> bytes, std::uint32_t unit) {
  switch (unit) {
    case 2:
      swap_all<std::uint16_t>(
          bytes, [](std::uint16_t v) -> std::uint16_t { return __builtin_bswap16(v); });
      break;
    case 4:
      swap_all<std::uint32_t>(bytes, [](std::uint32_t v) { return __builtin_bswap32(v); });
      break;
    case 8:
      swap_all<std::uint64_t>(
          bytes, [](std::uint64_t v) -> std::uint64_t { return __builtin_bswap64(v); });
      break;
    default:
      break;
  }
}

StridedView strided_view(const TensorView& view) {
  StridedView strided;
  strided.element_bytes = byte_size(view.dtype);
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    strided.sizes.push_back(static_cast<std::uint64_t>(view.shape[d]));
    strided.strides.push_back(static_cast<std::uint64_t>(view.strides[d]) * strided.element_bytes);
  }
  return strided;
}

}  // namespace

bool needs_swap(const Storage& storage, DType dtype) {
  return storage.byte_order == ByteOrder::kBig && swap_unit(dtype) > 1;
}

Status read_view(const TensorView& view, const Storage& storage, const ReadSource& read_storage,
                 std::uint64_t first, std::span<std::byte> out) {
  const std::uint64_t start = view.storage_offset;
  const bool swap = needs_swap(storage, view.dtype);
  const bool contiguous = is_contiguous(view.shape, view.strides);
  if (contiguous && !swap && !view.conj && !view.neg) {
    return read_storage(start + first, out);
  }
  const StridedView strided = contiguous ? StridedView() : strided_view(view);
  const auto from_start = [&](std::uint64_t offset, std::span<std::byte> piece) {
    return read_storage(start + offset, piece);
  };
  const auto read_whole = [&](std::uint64_t offset, std::span<std::byte> whole) {
    auto status = contiguous
                      ? from_start(offset, whole)
                      : gather_strided(strided, offset / strided.element_bytes, whole, from_start);
    if (status && swap) {
      swap_bytes(whole, swap_unit(view.dtype));
    }
    if (status && (view.conj || view.neg)) {
      apply_view_bits(view.dtype, view.conj, view.neg, whole);
    }
    return status;
  };
  return read_whole_elements(byte_size(view.dtype), first, out, read_whole);
}

Status read_file_storage(std::uint32_t index, const Storage& storage, const SourceFile& file,
                         InflatedStorages& inflated, std::uint64_t offset,
                         std::span<std::byte> out) {
  if (storage.compression == Compression::kNone) {
    return file.read(storage.offset + offset, out);
  }
  const auto place = inflated.get(index, storage, file);
  if (!place) {
    return fail(place.error());
  }
  return read_exact(place->fd, place->offset + offset, out, "inflated record of " + file.name());
}

ReadSource view_source(const CheckpointPart& part, const TensorView& view,
                       std::shared_ptr<InflatedStorages> inflated) {
  const Storage& storage = part.storages[view.storage];
  ReadSource bytes;
  if (storage.computed) {
    bytes = part.computed.at(view.storage);
  } else {
    bytes = [index = view.storage, storage, file = part.files[storage.file],
             inflated = std::move(inflated)](std::uint64_t offset, std::span<std::byte> out) {
      return read_file_storage(index, storage, *file, *inflated, offset, out);
    };
  }
  return [view, storage, bytes = std::move(bytes)](std::uint64_t first, std::span<std::byte> out) {
    return out.empty() ? Status() : read_view(view, storage, bytes, first, out);
  };
}

}  // namespace onnx_external
