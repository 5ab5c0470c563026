#include "tensor/quantize/packed_layout.h"

#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// The last dimensions of a part are those of a row.
Result<PackedPart> part_of(DType dtype, Shape shape) {
  PackedPart part{.dtype = dtype, .shape = std::move(shape)};
  TRY_ASSIGN(part.bytes, contiguous_nbytes(dtype, part.shape));
  TRY_ASSIGN(part.row_bytes, contiguous_nbytes(dtype, std::span(part.shape).subspan(1)));
  return part;
}

}  // namespace

Result<PackedLayout> packed_layout(const Scheme& scheme, std::int64_t rows, std::int64_t columns) {
  TRY(check_scheme(scheme));
  if (rows < 0 || columns < 0) {
    return corrupt("its shape " + shape_text(Shape{rows, columns}) + " has a negative dimension");
  }
  const std::int64_t block = scheme.block;
  const std::int64_t bits = scheme.bits;
  const std::int64_t blocks = columns / block + (columns % block != 0 ? 1 : 0);
  PackedLayout layout;
  layout.blocks = static_cast<std::uint64_t>(blocks);
  TRY_ASSIGN(layout.codes, part_of(DType::kUInt8, {rows, blocks, block * bits / 8}));
  TRY_ASSIGN(layout.scales, part_of(scheme.scales, {rows, blocks}));
  if (scheme.zero_points) {
    const std::int64_t in_byte = 8 / bits;
    const std::int64_t zeros = blocks / in_byte + (blocks % in_byte != 0 ? 1 : 0);
    TRY_ASSIGN(layout.zero_points, part_of(DType::kUInt8, {rows, zeros}));
  } else if (scheme.terms) {
    TRY_ASSIGN(layout.zero_points, part_of(scheme.scales, {rows, blocks}));
  }
  // Each part is below 2^63, so the first sum does not overflow.
  const auto sum = checked_add(layout.codes.bytes + layout.scales.bytes, layout.zero_points.bytes);
  if (!sum || *sum >> 63 != 0) {
    return corrupt("a matrix " + shape_text(Shape{rows, columns}) +
                   " has more than 2^63-1 bytes when it is quantized");
  }
  return layout;
}

}  // namespace onnx_external
