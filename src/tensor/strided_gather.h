// Copies the elements of a strided view in row-major order. For speed, the view's source is read in
// long runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/word_rows.h"

namespace onnx_external {

// The size of the scratch memory that gather_strided() uses. It is small enough to remain in a
// core's L2 cache between reading and reordering.
inline constexpr std::uint64_t kGatherScratchBytes = std::uint64_t{512} << 10;
// The same for gather_word_rows(), which needs 128 columns of the source to fill a cache line.
inline constexpr std::uint64_t kWordRowsScratchBytes = std::uint64_t{1} << 20;

// The maximum size of a gap that is read along with the runs next to it. Reading such a gap takes
// about as long as a system call.
inline constexpr std::uint64_t kReadOverGapBytes = std::uint64_t{12} << 10;

// Rounds a count down to a multiple of `of`; returns a count that is smaller than `of` unchanged.
constexpr std::uint64_t whole_multiple(std::uint64_t count, std::uint64_t of) {
  return count > of ? count / of * of : count;
}

// The dimensions of a view, outermost first. Strides are in bytes; 0 means expanded. All functions
// in this header require that the whole view is inside its source, so that no sum overflows.
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

// Returns the dimensions of a view, outermost first. Dimensions of size 1 are dropped, and adjacent
// dimensions that one stride describes are merged. A contiguous tensor of any shape therefore has
// one dimension with stride 1, or none if it has a single element. Requires: no dimension is 0.
[[nodiscard]] std::vector<StridedDim> merged_dims(const TensorView& view);

// A function that fills `out` with bytes of the source. `offset` is in bytes from element 0 of the
// view.
using ReadSource = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Writes the elements [first, first + out.size() / element_bytes) of the row-major tensor. Runs
// that are adjacent in the source are read together, and so are runs with a small gap between them
// if that is cheaper than two reads. For a transposed view, a larger `out` gives longer runs. Stops
// at the first error of `read`. Requires: out.size() is a multiple of element_bytes; the elements
// exist.
[[nodiscard]] Status gather_strided(const StridedView& view, std::uint64_t first,
                                    std::span<std::byte> out, const ReadSource& read);

// Returns the best distance in memory, in bytes, between rows of `row_bytes` bytes, or between
// windows of a source. The distance is an odd number of cache lines, because rows whose distance is
// a power of two compete for the same lines.
[[nodiscard]] std::uint64_t spread_rows(std::uint64_t row_bytes);

// Gathers a whole matrix; its rows are `pitch` bytes apart in the output. `scratch` has
// kGatherScratchBytes bytes. Requires: the view has two dimensions, neither of which is 0; a row
// fits into `pitch`.
[[nodiscard]] Status gather_matrix(const StridedView& view, std::uint64_t pitch, std::byte* out,
                                   std::byte* scratch, const ReadSource& read);

// Gathers a matrix of 32-bit words, whose rows become rows of 4-bit codes (pack_word_rows()), which
// are contiguous in the output. `scratch` has kWordRowsScratchBytes bytes. Requires: the view has
// two dimensions; the number of columns is even, and not 0.
[[nodiscard]] Status gather_word_rows(const StridedView& view, const WordRows& rows, std::byte* out,
                                      std::byte* scratch, const ReadSource& read);

}  // namespace onnx_external
