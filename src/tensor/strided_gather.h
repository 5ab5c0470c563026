// Puts the elements of a strided view into row-major order, reading its source in runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// Scratch that gather_strided uses beside its output: what is read and put in order at once stays
// in a core's second-level cache.
inline constexpr std::uint64_t kGatherScratchBytes = std::uint64_t{512} << 10;

// Reading over a gap of this many bytes costs about as much as a system call.
inline constexpr std::uint64_t kReadOverGapBytes = std::uint64_t{12} << 10;

// Dimensions of a view, outermost first. Strides in bytes, 0 = expanded.
// Requires (of all functions here): the whole view lies inside its source, so no sum overflows.
struct StridedView {
  std::uint32_t element_bytes = 1;  // 1, 2, 4, 8 or 16
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
};

// Fills `out` with bytes of the source from `offset` on (bytes from element 0 of the view).
using ReadSource = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Writes the elements [first, first + out.size() / element_bytes) of the row-major tensor. Reads
// runs that are neighbours in the source together, and reads over gaps when that is cheaper than
// two reads; the larger `out` is, the longer the runs of a transposed view are. Stops at the first
// error of `read`.
// Requires: out.size() is a multiple of element_bytes; the elements exist.
[[nodiscard]] Status gather_strided(const StridedView& view, std::uint64_t first,
                                    std::span<std::byte> out, const ReadSource& read);

// How far apart rows (or the windows of a source) are best put in memory: rows that lie a power of
// two apart share few lines of a cache, so an odd number of lines is between them.
[[nodiscard]] std::uint64_t spread_rows(std::uint64_t row_bytes);

// The whole of a matrix, its rows `pitch` bytes apart in the output.
// Requires: two dimensions of at least one element each; a row fits into `pitch`.
[[nodiscard]] Status gather_matrix(const StridedView& view, std::uint64_t pitch, std::byte* out,
                                   const ReadSource& read);

}  // namespace onnx_external
