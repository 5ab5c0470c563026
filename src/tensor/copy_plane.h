// Copies a matrix of elements from one layout in memory to another. Fast for transposed matrices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_external {

inline constexpr std::uint64_t kCacheLineBytes = 64;

// Whether the output is written to the caches, or past them. A line that is written in a cache is
// fetched first and evicted later, which is wasted if the output does not fit into the cache.
enum class Stores : std::uint8_t { kCached, kStreamed };

// A matrix in two layouts. All steps are in bytes. In the output, elements of a row are adjacent.
struct Plane {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  const std::byte* from = nullptr;
  std::uint64_t row_step = 0;     // in the source
  std::uint64_t column_step = 0;  // in the source
  std::byte* to = nullptr;
  std::uint64_t out_step = 0;  // from a row to the next, in the output
};

// Copies the elements. With kStreamed, cache lines of a transposed matrix are written past the
// caches if they are whole and aligned; other threads see them only after finish_streams().
// Requires: element_bytes is 1, 2, 4, 8 or 16; source and output do not overlap.
void copy_plane(const Plane& plane, std::uint32_t element_bytes, Stores stores);

// Orders streamed stores before all later stores of this thread.
void finish_streams();

}  // namespace onnx_external
