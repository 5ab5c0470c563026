// Writes all parts of a quantized matrix (codes, scales, zero points) in one pass over the tensor,
// so that the tensor is read and quantized only once (save/copy_steps.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/buffer_pool.h"
#include "base/copy_range.h"
#include "base/output_file.h"
#include "onnx_external/result.h"
#include "save/copy_steps.h"
#include "save/row_packer.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

// The result of a pass over some rows.
struct PassResult {
  // For each range, the CRC-32 of the bytes written.
  std::array<std::uint32_t, kMatrixParts> crcs{};
  QuantizationError error;
};

// Thread-safe. The job must outlive this object.
class PassCopier {
 public:
  // `step`: as for ItemCopier.
  PassCopier(const CopyJob& job, StepFn step) : job_(job), step_(std::move(step)) {}

  // Writes some rows. `item`: rows of the head of a pass. `files`: the file of each range in the
  // pass. `buffers` belong to the calling thread.
  [[nodiscard]] Result<PassResult> copy(const CopyItem& item,
                                        std::span<const OutputFile* const> files,
                                        PackingBuffers& buffers);

 private:
  const CopyJob& job_;
  StepFn step_;
  BufferPool tiles_{kMaxTiles};
};

// The rows of a pass that an item covers. They are computed, because a CopyItem counts bytes of the
// head, not rows.
struct PassRows {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
[[nodiscard]] PassRows rows_of(const CopyJob& job, const CopyItem& item);

}  // namespace onnx_external
