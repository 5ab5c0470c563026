// A row of equal blocks, most of them zero, put together from the few that are stored.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/dtype.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Stored block number `value` stands at place `block`.
struct PlacedBlock {
  std::uint64_t block = 0;
  std::uint64_t value = 0;

  friend auto operator<=>(const PlacedBlock&, const PlacedBlock&) = default;
};

// True when numbers of the type are added exactly as torch adds them (half-width types are rounded
// after each addition there, which is not done here).
[[nodiscard]] bool can_add(DType dtype);

// Immutable; safe from any thread as far as `values` is.
class BlockScatter {
 public:
  // `values` reads the stored blocks, one behind the other. Blocks with the same place are added
  // up in the order of their values.
  // Requires: `placed` is sorted; block_bytes is a positive multiple of the element size; where two
  // blocks share a place, can_add(dtype); no byte of a place is past 2^64.
  BlockScatter(std::vector<PlacedBlock> placed, std::uint64_t block_bytes, DType dtype,
               ReadSource values);

  // The bytes from `first` on; zeros where nothing is placed. Values are read in pieces of at most
  // kPieceBytes where they do not go straight into `out`.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{256} << 10;

 private:
  // Whole elements only.
  [[nodiscard]] Status read_elements(std::uint64_t first, std::span<std::byte> out) const;
  // How many of the blocks [begin, end) lie one behind the other in `values`, bounded by a piece.
  [[nodiscard]] std::size_t run_length(std::size_t begin, std::size_t end) const;
  void place(std::size_t index, std::span<const std::byte> block, std::uint64_t skipped,
             std::uint64_t first, std::span<std::byte> out) const;

  std::vector<PlacedBlock> placed_;
  std::uint64_t block_bytes_;
  DType dtype_;
  ReadSource values_;
};

}  // namespace onnx_external
