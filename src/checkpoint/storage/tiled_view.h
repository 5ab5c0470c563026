// Reads views whose rows are spread over their storage, such as transposed matrices, in tiles:
// blocks of elements that are long runs of bytes both in the storage and in the tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/io_buffer.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The memory of a tile, which allows runs of 4 KiB on both sides for any element type; and the
// memory of a tile of whole rows, whose readers also need other buffers.
inline constexpr std::uint64_t kTileBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kWholeRowsTileBytes = std::uint64_t{8} << 20;
// Besides its tile, a reader needs at most Checkpoint::kReadScratchBytes. With this many readers at
// once, a save or a verification stays below 64 MiB; further threads wait.
inline constexpr int kMaxTiles = 3;

// kWholeRows: tiles are whole rows of the tensor, so that read() passes all bytes on in order.
// kAny: the fastest tiles.
enum class TileShape : std::uint8_t { kAny, kWholeRows };

// Receives a run of the tensor's bytes, which the function may change, and the run's offset.
using TakeRun = std::function<Status(std::uint64_t at, std::span<std::byte> run)>;

// Immutable; read() may be called from several threads at once. `checkpoint` must outlive it.
class TiledView {
 public:
  // Returns nullopt for small views and for views that can be read efficiently in order. With
  // `cast_to`, values are converted as by Checkpoint::read_as().
  [[nodiscard]] static std::optional<TiledView> of(const Checkpoint& checkpoint,
                                                   const TensorView& view,
                                                   std::optional<DType> cast_to,
                                                   TileShape shape = TileShape::kAny);

  // The size of the smallest chunk that consists of whole tiles and has at least `least` bytes.
  // Reading the tensor in chunks of this size, counted from its start, is as efficient as reading
  // it at once.
  [[nodiscard]] std::uint64_t chunk_bytes(std::uint64_t least) const;

  // Passes the bytes [first, first + length) of the row-major tensor to `take`. The runs of each
  // row come in order, but several rows are interleaved. `tile` grows to the largest tile, plus up
  // to 127 bytes between rows of 1 KiB and more. `crc`: unless null, receives the CRC-32 of the
  // bytes. Stops at the first error of `take`. Errors as for Checkpoint::read(). Requires: `first`
  // and `length` are multiples of chunk_bytes(1), except that the last chunk may be shorter.
  [[nodiscard]] Status read(std::uint64_t first, std::uint64_t length, IoBuffer& tile,
                            const TakeRun& take, std::uint32_t* crc = nullptr) const;

 private:
  class Band;

  TiledView(const Checkpoint& checkpoint, const TensorView& view, std::optional<DType> cast_to)
      : checkpoint_(checkpoint), view_(view), cast_to_(cast_to) {}
  [[nodiscard]] double cost(std::uint64_t rows, std::uint64_t columns) const;
  void choose_tile(TileShape shape);
  [[nodiscard]] std::uint64_t element_of_matrix(std::uint64_t number) const;

  const Checkpoint& checkpoint_;
  TensorView view_;
  std::optional<DType> cast_to_;
  std::uint64_t unit_ = 1;            // bytes of an element in the storage
  std::uint64_t out_unit_ = 1;        // bytes of an element of the tensor
  std::vector<StridedDim> matrices_;  // outermost first
  StridedDim rows_;                   // rows of a matrix; adjacent in the storage
  StridedDim columns_;
  std::uint64_t tile_rows_ = 1;
  std::uint64_t tile_columns_ = 1;
};

}  // namespace onnx_external
