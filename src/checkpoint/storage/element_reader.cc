#include "checkpoint/storage/element_reader.h"

#include <cstring>
#include <utility>

#include "base/try.h"
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

StridedView strided(const TensorView& view) {
  StridedView out{.element_bytes = byte_size(view.dtype), .sizes = {}, .strides = {}};
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    out.sizes.push_back(static_cast<std::uint64_t>(view.shape[d]));
    out.strides.push_back(static_cast<std::uint64_t>(view.strides[d]) * out.element_bytes);
  }
  return out;
}

}  // namespace

bool needs_swap(const Storage& storage, DType dtype) {
  return storage.byte_order == ByteOrder::kBig && swap_unit(dtype) > 1;
}

bool has_word_rows(const Storage& storage, const TensorView& view) {
  return view.shape.size() == 2 && view.shape[1] % 2 == 0 && view.shape[1] > 0 &&
         byte_size(view.dtype) == sizeof(std::uint32_t) && !needs_swap(storage, view.dtype) &&
         !view.neg && !view.conj;
}

ElementReader::ElementReader(const TensorView& view, const Storage& storage,
                             ReadSource read_storage)
    : view_(view),
      unit_(byte_size(view.dtype)),
      swap_(needs_swap(storage, view.dtype)),
      contiguous_(is_contiguous(view.shape, view.strides)),
      read_storage_(std::move(read_storage)),
      strided_(contiguous_ ? StridedView() : strided(view)) {}

Status ElementReader::read(std::uint64_t first, std::span<std::byte> out) const {
  if (contiguous_ && !swap_ && !view_.conj && !view_.neg) {
    return read_storage_(view_.storage_offset + first, out);
  }
  return read_whole_elements(unit_, first, out, [&](std::uint64_t at, std::span<std::byte> whole) {
    return read_whole(at / unit_, whole);
  });
}

Status ElementReader::read_whole(std::uint64_t element, std::span<std::byte> out) const {
  const std::uint64_t start = view_.storage_offset;
  TRY(contiguous_ ? read_storage_(start + element * unit_, out)
                  : gather_strided(strided_, element, out,
                                   [&](std::uint64_t offset, std::span<std::byte> chunk) {
                                     return read_storage_(start + offset, chunk);
                                   }));
  put_right(out);
  return {};
}

Status ElementReader::read_rows(std::uint64_t pitch, std::span<std::byte> out,
                                std::byte* scratch) const {
  TRY(gather_matrix(strided(view_), pitch, out.data(), scratch,
                    [&](std::uint64_t offset, std::span<std::byte> chunk) {
                      return read_storage_(view_.storage_offset + offset, chunk);
                    }));
  put_right(out);
  return {};
}

Status ElementReader::read_word_rows(const WordRows& rows, std::span<std::byte> out,
                                     std::byte* scratch) const {
  return gather_word_rows(strided(view_), rows, out.data(), scratch,
                          [&](std::uint64_t offset, std::span<std::byte> chunk) {
                            return read_storage_(view_.storage_offset + offset, chunk);
                          });
}

void ElementReader::put_right(std::span<std::byte> out) const {
  if (swap_) {
    swap_bytes(out, swap_unit(view_.dtype));
  }
  if (view_.conj || view_.neg) {
    apply_view_bits(view_.dtype, view_.conj, view_.neg, out);
  }
}

}  // namespace onnx_external
