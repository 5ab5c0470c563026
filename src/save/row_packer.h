// Quantizes rows of a matrix to the bytes of its parts, which are codes, scales and zero points.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/io_buffer.h"
#include "checkpoint/storage/tiled_view.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/kept_rows.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

// The number of source bytes that are quantized in one step. A step has at least one row.
inline constexpr std::uint64_t kRowsAtOnceBytes = std::uint64_t{1} << 20;

// Buffers that are reused from call to call. For use by one thread at a time.
struct PackingBuffers {
  KeptBuffers kept;
  IoBuffer rows;
  std::array<IoBuffer, kMatrixParts> parts;
};

// The bytes of some rows in each part; empty for parts that the scheme does not have, and for those
// that come in another call.
struct PackedBytes {
  std::array<std::span<const std::byte>, kMatrixParts> parts;
};

// Quantizes one matrix. Immutable; any number of threads may use it. The checkpoint must outlive
// this object.
class RowPacker {
 public:
  // `view` is the tensor after its recipe. `cast_to` is PlannedTensor::cast_to.
  RowPacker(const Checkpoint& checkpoint, const TensorView& view, std::optional<DType> cast_to,
            const PackedTensor& packed);

  // Returns the bytes per row in a part.
  [[nodiscard]] std::uint64_t row_bytes(MatrixPart part) const {
    return part_row_bytes_[static_cast<std::size_t>(part)];
  }
  // Returns the number of rows that are read efficiently in one call. They have about `bytes` bytes
  // in the source, in whole tiles.
  [[nodiscard]] std::uint64_t chunk_rows(std::uint64_t bytes) const;

  using Take = std::function<Status(std::uint64_t first_row, const PackedBytes& made)>;
  // Quantizes the rows [first, first + count), or keeps their codes, and passes the bytes to `take`
  // in order, some rows at a time. The bytes of parts before PackedTensor::part are unspecified.
  // `tile` is used if rows are spread over the storage. The quantization error is added to `error`,
  // unless `error` is null. Errors are those of reading, of `take`, and of quantize_rows().
  [[nodiscard]] Status make(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                            PackingBuffers& buffers, const Take& take,
                            QuantizationError* error = nullptr) const;

  // Returns whether make() needs its argument `tile`.
  [[nodiscard]] bool needs_tile() const { return tiles_.has_value() || packed_.scheme.kept; }

 private:
  class Collector;
  [[nodiscard]] Status keep(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                            PackingBuffers& buffers, const Take& take) const;

  const Checkpoint& checkpoint_;
  TensorView view_;
  std::optional<DType> cast_to_;
  DType dtype_;  // element type of the rows that are read
  PackedTensor packed_;
  std::uint64_t source_row_bytes_ = 0;
  std::array<std::uint64_t, kMatrixParts> part_row_bytes_{};
  std::optional<TiledView> tiles_;
};

// Returns the range of a file with the bytes of the part. Returns nullopt unless the part consists
// of codes that are kept unchanged and are one range of a file.
[[nodiscard]] std::optional<FileRange> stored_codes_range(const Checkpoint& checkpoint,
                                                          const TensorView& view,
                                                          const PackedTensor& packed);

// Reads the bytes [first, first + out.size()) of the part that `packed` describes.
[[nodiscard]] Status read_packed(const Checkpoint& checkpoint, const TensorView& view,
                                 std::optional<DType> cast_to, const PackedTensor& packed,
                                 std::uint64_t first, std::span<std::byte> out);

}  // namespace onnx_external
