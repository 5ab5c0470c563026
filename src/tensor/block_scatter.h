// Assembles a tensor of blocks of equal size from the few blocks that are stored, as in a sparse
// tensor. All other blocks are zero.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/dtype.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The stored block with index `value` belongs at block index `block` of the tensor.
struct PlacedBlock {
  std::uint64_t block = 0;
  std::uint64_t value = 0;

  friend auto operator<=>(const PlacedBlock&, const PlacedBlock&) = default;
};

// Returns whether values of the type can be added with the same result as in torch. False for float
// types narrower than 32 bits, which torch rounds after each addition.
[[nodiscard]] bool can_add(DType dtype);

// Reads the assembled tensor. Immutable. It may be called from several threads at once if `values`
// may.
class BlockScatter {
 public:
  // `values` reads the stored blocks, which are contiguous. Blocks with the same index are summed
  // in the order of PlacedBlock::value. Requires: `placed` is sorted; block_bytes is a positive
  // multiple of the element size; can_add(dtype) if two blocks share an index; no byte offset
  // exceeds 2^64.
  BlockScatter(std::vector<PlacedBlock> placed, std::uint64_t block_bytes, DType dtype,
               ReadSource values);

  // Reads the bytes from `first` on; bytes that belong to no stored block are zero. Values that
  // cannot be read directly into `out` are read in chunks of at most kChunkBytes.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;
  static constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10;

 private:
  // Reads like read(), but only whole elements.
  [[nodiscard]] Status read_elements(std::uint64_t first, std::span<std::byte> out) const;
  // Returns how many blocks from index `begin` on are contiguous in `values`. The run ends before
  // `end` and fits into a chunk.
  [[nodiscard]] std::size_t run_length(std::size_t begin, std::size_t end) const;
  void place(std::size_t index, std::span<const std::byte> block, std::uint64_t skipped,
             std::uint64_t first, std::span<std::byte> out) const;

  std::vector<PlacedBlock> placed_;
  std::uint64_t block_bytes_;
  DType dtype_;
  ReadSource values_;
};

}  // namespace onnx_external
