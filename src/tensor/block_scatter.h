// Assembles a sequence of equally large blocks, most of them zero, from the few that are stored.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/dtype.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Stored block number `value` belongs at block index `block`.
struct PlacedBlock {
  std::uint64_t block = 0;
  std::uint64_t value = 0;

  friend auto operator<=>(const PlacedBlock&, const PlacedBlock&) = default;
};

// True if numbers of the type can be added exactly as torch adds them. torch rounds float types
// narrower than 32 bits after each addition, which is not done here.
[[nodiscard]] bool can_add(DType dtype);

// Immutable; as thread-safe as `values` is.
class BlockScatter {
 public:
  // `values` reads the stored blocks, which are contiguous. Blocks with the same index are added up
  // in the order of their values.
  // Requires: `placed` is sorted; block_bytes is a positive multiple of the element size;
  // can_add(dtype) if two blocks share an index; no byte offset exceeds 2^64.
  BlockScatter(std::vector<PlacedBlock> placed, std::uint64_t block_bytes, DType dtype,
               ReadSource values);

  // Reads the bytes from `first` on, with zeros where there is no block. Values that do not go
  // straight into `out` are read in chunks of at most kChunkBytes.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;
  static constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10;

 private:
  // Whole elements only.
  [[nodiscard]] Status read_elements(std::uint64_t first, std::span<std::byte> out) const;
  // The number of the blocks [begin, end) that are contiguous in `values`; at most those that fit
  // into a chunk.
  [[nodiscard]] std::size_t run_length(std::size_t begin, std::size_t end) const;
  void place(std::size_t index, std::span<const std::byte> block, std::uint64_t skipped,
             std::uint64_t first, std::span<std::byte> out) const;

  std::vector<PlacedBlock> placed_;
  std::uint64_t block_bytes_;
  DType dtype_;
  ReadSource values_;
};

}  // namespace onnx_external
