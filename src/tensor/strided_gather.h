// Copies the elements of a strided view into row-major order, and reads the view's source in long
// runs for speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The size of the scratch memory that gather_strided() uses. It is small enough to stay in a core's
// L2 cache between reading and reordering.
inline constexpr std::uint64_t kGatherScratchBytes = std::uint64_t{512} << 10;

// Reading a gap of this many bytes costs about as much as a system call.
inline constexpr std::uint64_t kReadOverGapBytes = std::uint64_t{12} << 10;

// Rounds a count down to a multiple of `of`; returns a count that is smaller than `of` unchanged.
constexpr std::uint64_t whole_multiple(std::uint64_t count, std::uint64_t of) {
  return count > of ? count / of * of : count;
}

// The dimensions of a view, outermost first. Strides are in bytes; 0 means expanded. Requires (of
// all functions here): the whole view lies inside its source, so no sum overflows.
struct StridedView {
  std::uint32_t element_bytes = 1;  // 1, 2, 4, 8 or 16
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
};

struct StridedDim {
  std::uint64_t size = 0;
  std::uint64_t stride = 0;  // elements

  friend auto operator<=>(const StridedDim&, const StridedDim&) = default;
};

// The dimensions of a view, outermost first. Dimensions of size 1 are dropped, and adjacent
// dimensions that one stride can step through are merged. So a contiguous tensor of any shape
// becomes one dimension with stride 1 (no dimension if it has a single element). Requires: no
// dimension is 0.
[[nodiscard]] std::vector<StridedDim> merged_dims(const TensorView& view);

// Fills `out` with bytes of the source; `offset` counts bytes from element 0 of the view.
using ReadSource = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Writes the elements [first, first + out.size() / element_bytes) of the row-major tensor. Runs
// that are adjacent in the source are read together, and so are runs with a small gap between them
// if that is cheaper than two reads. For a transposed view, a larger `out` gives longer runs. Stops
// at the first error of `read`. Requires: out.size() is a multiple of element_bytes; the elements
// exist.
[[nodiscard]] Status gather_strided(const StridedView& view, std::uint64_t first,
                                    std::span<std::byte> out, const ReadSource& read);

// Returns the best distance in memory, in bytes, between rows of `row_bytes` bytes, or between
// windows of a source. Rows a power of two apart compete for the same cache lines, so the distance
// is an odd number of lines.
[[nodiscard]] std::uint64_t spread_rows(std::uint64_t row_bytes);

// Gathers a whole matrix; its rows are `pitch` bytes apart in the output. Requires: the view has
// two dimensions, neither of which is 0; a row fits into `pitch`.
[[nodiscard]] Status gather_matrix(const StridedView& view, std::uint64_t pitch, std::byte* out,
                                   const ReadSource& read);

}  // namespace onnx_external
