// Reads views whose rows run across their storage, such as transposed matrices, in tiles: pieces
// that are long runs of bytes on both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/io_buffer.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The memory of a tile: room for runs of 4 KiB on both sides, whatever the element type.
inline constexpr std::uint64_t kTileBytes = std::uint64_t{16} << 20;
// Beside its tile a reader holds Checkpoint::kReadScratchBytes at most. With so many of them a
// save, or a verification, stays below 64 MiB; further threads wait.
inline constexpr int kMaxTiles = 3;

// Gets a run of the tensor's bytes and its place.
using TakeRun = std::function<Status(std::uint64_t at, std::span<const std::byte> run)>;

// Immutable; read() may be called from several threads at once. `checkpoint` must outlive it.
class TiledView {
 public:
  // Nothing for views that are read well in order, and for small ones. `cast_to`: the values are
  // converted, as Checkpoint::read_as() does.
  [[nodiscard]] static std::optional<TiledView> of(const Checkpoint& checkpoint,
                                                   const TensorView& view,
                                                   std::optional<DType> cast_to);

  // The least multiple of whole tiles, from the start of the tensor, that has `least` bytes: pieces
  // of this size are read as well as the whole.
  [[nodiscard]] std::uint64_t piece_bytes(std::uint64_t least) const;

  // Gives the bytes [first, first + length) of the row-major tensor to `take`: each row from its
  // start to its end, but rows side by side. The result is their CRC-32. `tile` gets
  // room for the largest tile, and for up to 127 bytes between rows of 1 KiB and more. Stops at the
  // first error of `take`. Errors as Checkpoint::read(). Requires: both are multiples of
  // piece_bytes(1), but that the last piece is shorter.
  [[nodiscard]] Result<std::uint32_t> read(std::uint64_t first, std::uint64_t length,
                                           IoBuffer& tile, const TakeRun& take) const;

 private:
  struct Dim {
    std::uint64_t size;
    std::uint64_t stride;  // elements
  };
  class Band;

  TiledView(const Checkpoint& checkpoint, const TensorView& view, std::optional<DType> cast_to)
      : checkpoint_(checkpoint), view_(view), cast_to_(cast_to) {}
  [[nodiscard]] double cost(std::uint64_t rows, std::uint64_t columns) const;
  void choose_tile();
  [[nodiscard]] std::uint64_t element_of_matrix(std::uint64_t number) const;

  const Checkpoint& checkpoint_;
  TensorView view_;
  std::optional<DType> cast_to_;
  std::uint64_t unit_ = 1;      // bytes of an element in the storage
  std::uint64_t out_unit_ = 1;  // bytes of an element of the tensor
  std::vector<Dim> matrices_;   // outermost first
  Dim rows_{};                  // of a matrix; neighbours in the storage
  Dim columns_{};
  std::uint64_t tile_rows_ = 1;
  std::uint64_t tile_columns_ = 1;
};

}  // namespace onnx_external
