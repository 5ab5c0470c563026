// Compares the saved parts of a quantized matrix (codes, scales, zero points) with the checkpoint.
// One pass over the rows checks all parts, so each row is quantized only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "base/byte_comparer.h"
#include "base/directory.h"
#include "base/progress_meter.h"
#include "save/row_packer.h"
#include "verify/range_check.h"

namespace onnx_external {

// Indices into the checks: two or three parts of one matrix. Codes that the checkpoint has in a
// range of a file are not included.
using MatrixCheck = std::vector<std::size_t>;

// The matrices of which several parts are compared with a checkpoint's file. Each check belongs to
// one at most. `is_in_file`: whether the file of a check has all of its bytes.
[[nodiscard]] std::vector<MatrixCheck> find_matrix_checks(
    std::span<const RangeCheck> checks, const Checkpoint& checkpoint,
    const std::function<bool(const RangeCheck&)>& is_in_file);

// The rows of a matrix that are compared at once: about `bytes` bytes of the source, but enough
// that there are at most `most_chunks`.
[[nodiscard]] std::uint64_t matrix_chunk_rows(const Checkpoint& checkpoint,
                                              const WantedTensor& tensor, std::uint64_t bytes,
                                              std::uint64_t most_chunks);

// The bytes of a row in the part that the tensor holds.
[[nodiscard]] std::uint64_t part_row_bytes(const WantedTensor& tensor);

// The buffers of a thread for check_matrix().
struct MatrixTools {
  const Checkpoint& checkpoint;
  const VerifyOptions& options;
  ByteComparer& comparer;
  PackingBuffers& buffers;
  BufferPool& tiles;
  ProgressMeter& meter;
};

// Compares the rows [first, first + count) of the parts, and computes the CRC-32 of what it found.
// Errors of the data files go into `answers`, one for each check.
[[nodiscard]] Status check_matrix(const Directory& folder,
                                  std::span<const RangeCheck* const> checks, std::uint64_t first,
                                  std::uint64_t count, const MatrixTools& tools,
                                  std::span<RangeAnswer> answers);

}  // namespace onnx_external
