// Quantizes rows of a matrix, and makes the bytes of its parts.
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

// The bytes of the source that are quantized at once, or a row if that has more.
inline constexpr std::uint64_t kRowsAtOnceBytes = std::uint64_t{1} << 20;

// Reused from call to call. One thread at a time.
struct PackingBuffers {
  KeptBuffers kept;
  IoBuffer rows;
  std::array<IoBuffer, kMatrixParts> parts;
};

// The bytes that some rows have in each part; none in parts that the scheme lacks.
struct PackedBytes {
  std::array<std::span<const std::byte>, kMatrixParts> parts;
};

// Immutable; any number of threads may read. The checkpoint must outlive it.
class RowPacker {
 public:
  // `view`: the rows, as the recipe makes them. `cast_to`: PlannedTensor::cast_to.
  RowPacker(const Checkpoint& checkpoint, const TensorView& view, std::optional<DType> cast_to,
            const PackedTensor& packed);

  // The bytes that a row takes in a part.
  [[nodiscard]] std::uint64_t row_bytes(MatrixPart part) const {
    return part_row_bytes_[static_cast<std::size_t>(part)];
  }
  // The number of rows that should be read at once: about `bytes` bytes of the source, and whole
  // tiles.
  [[nodiscard]] std::uint64_t chunk_rows(std::uint64_t bytes) const;

  using Take = std::function<Status(std::uint64_t first_row, const PackedBytes& made)>;
  // Quantizes the rows [first, first + count), or keeps their codes, and passes them on in order,
  // some at a time. The bytes of parts before PackedTensor::part may be anything. `tile`: used
  // where the rows run across the storage. Adds to `error`, unless it is null. Errors of reading,
  // of `take`, and of quantize_rows().
  [[nodiscard]] Status make(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                            PackingBuffers& buffers, const Take& take,
                            QuantizationError* error = nullptr) const;

  // Returns whether make() needs its tile.
  [[nodiscard]] bool needs_tile() const { return tiles_.has_value() || packed_.scheme.kept; }

 private:
  class Collector;
  [[nodiscard]] Status keep(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                            PackingBuffers& buffers, const Take& take) const;

  const Checkpoint& checkpoint_;
  TensorView view_;
  std::optional<DType> cast_to_;
  DType dtype_;  // of the rows that are read
  PackedTensor packed_;
  std::uint64_t source_row_bytes_ = 0;
  std::array<std::uint64_t, kMatrixParts> part_row_bytes_{};
  std::optional<TiledView> tiles_;
};

// The place of the part's bytes in the checkpoint; nullopt unless they are codes that are kept
// unchanged, in one range of a file.
[[nodiscard]] std::optional<FileRange> stored_codes_range(const Checkpoint& checkpoint,
                                                          const TensorView& view,
                                                          const PackedTensor& packed);

// Reads the bytes [first, first + out.size()) of the part that `packed` names.
[[nodiscard]] Status read_packed(const Checkpoint& checkpoint, const TensorView& view,
                                 std::optional<DType> cast_to, const PackedTensor& packed,
                                 std::uint64_t first, std::span<std::byte> out);

}  // namespace onnx_external
