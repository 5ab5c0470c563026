// Compares the saved parts of a quantized matrix (codes, scales, zero points) with the checkpoint.
// All parts are compared in one pass over the rows, so that each row is quantized only once.
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

// The indices of the checks of one matrix. There are two or three, one for each part. Codes that
// are a range of a checkpoint file are not included.
using MatrixCheck = std::vector<std::size_t>;

// Returns the matrices for which several parts must be compared with the checkpoint. Each check
// belongs to at most one matrix. `is_in_file` returns whether the file of a check contains the
// whole range.
[[nodiscard]] std::vector<MatrixCheck> find_matrix_checks(
    std::span<const RangeCheck> checks, const Checkpoint& checkpoint,
    const std::function<bool(const RangeCheck&)>& is_in_file);

// Returns the number of rows of a matrix that are compared in one chunk. The rows have about
// `bytes` bytes in the source, or more if there would otherwise be more than `most_chunks` chunks.
[[nodiscard]] std::uint64_t matrix_chunk_rows(const Checkpoint& checkpoint,
                                              const WantedTensor& tensor, std::uint64_t bytes,
                                              std::uint64_t most_chunks);

// Returns the bytes per row in the part that the tensor holds.
[[nodiscard]] std::uint64_t part_row_bytes(const WantedTensor& tensor);

// The objects that a thread needs for check_matrix(), including its buffers.
struct MatrixTools {
  const Checkpoint& checkpoint;
  const VerifyOptions& options;
  ByteComparer& comparer;
  PackingBuffers& buffers;
  BufferPool& tiles;
  CheckedFiles& checked;
  ProgressMeter& meter;
};

// Compares the rows [first, first + count) of the parts, and computes the CRC-32 of the bytes read.
// `answers` has one element for each check; errors of the data files are stored there.
[[nodiscard]] Status check_matrix(const Directory& folder,
                                  std::span<const RangeCheck* const> checks, std::uint64_t first,
                                  std::uint64_t count, const MatrixTools& tools,
                                  std::span<RangeAnswer> answers);

}  // namespace onnx_external
