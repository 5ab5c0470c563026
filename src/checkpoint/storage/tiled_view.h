// Reads views whose rows are spread over their storage, such as transposed matrices, in tiles. A
// tile is a block of elements that consists of long runs of bytes both in the storage and in the
// tensor.
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

// The memory of a tile. kTileBytes allows runs of 4 KiB both in the storage and in the tensor for
// any element type. Tiles of whole rows are smaller, because their readers need additional buffers.
inline constexpr std::uint64_t kTileBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kWholeRowsTileBytes = std::uint64_t{8} << 20;
// The maximum number of readers at the same time; further threads wait. A reader needs its tile and
// at most Checkpoint::kReadScratchBytes, so a save or a verification needs less than 64 MiB.
inline constexpr int kMaxTiles = 3;

// The shape of tiles. With kWholeRows, tiles are whole rows of the tensor, so that read() passes
// all bytes on in order. With kAny, tiles have the shape that is fastest.
enum class TileShape : std::uint8_t { kAny, kWholeRows };

// A function that receives a run of the tensor's bytes, which it may modify, and the offset of the
// run.
using TakeRun = std::function<Status(std::uint64_t at, std::span<std::byte> run)>;

// A view that is read in tiles. Immutable; read() may be called from several threads at once. The
// checkpoint must outlive this object.
class TiledView {
 public:
  // Creates a reader for a view. Returns nullopt for small views and for views that can be read
  // efficiently without tiles. If `cast_to` is given, values are converted as by
  // Checkpoint::read_as().
  [[nodiscard]] static std::optional<TiledView> of(const Checkpoint& checkpoint,
                                                   const TensorView& view,
                                                   std::optional<DType> cast_to,
                                                   TileShape shape = TileShape::kAny);

  // Creates a reader for a matrix of words, each of whose rows is passed on as rows of codes
  // (tensor/word_rows.h). Tiles are whole rows. Returns nullopt also for other matrices, and if a
  // row of words is larger than a tile.
  [[nodiscard]] static std::optional<TiledView> of_word_rows(const Checkpoint& checkpoint,
                                                             const TensorView& view,
                                                             const WordRows& rows);

  // Returns the size of the smallest chunk that consists of whole tiles and has at least `least`
  // bytes. Reading the tensor from its start in chunks of this size is as efficient as reading it
  // in a single call.
  [[nodiscard]] std::uint64_t chunk_bytes(std::uint64_t least) const;

  // Passes the bytes [first, first + length) of the row-major tensor to `take`. The runs of each
  // row come in order, but several rows are interleaved. `tile` is enlarged to the size of the
  // largest tile, plus up to 127 bytes between rows of 1 KiB and more. If `crc` is not null, it
  // receives the CRC-32 of the bytes. Stops at the first error of `take`. Errors as for
  // Checkpoint::read(). Requires: `first` and `length` are multiples of chunk_bytes(1), except that
  // the last chunk may be shorter; or tiles are whole rows, and both are multiples of a row, in
  // which case a tile may be read in parts.
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
  std::optional<WordRows> word_rows_;
};

}  // namespace onnx_external
