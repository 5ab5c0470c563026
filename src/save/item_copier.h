// Copies or converts the bytes of tensors from their sources into the data files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/copy_range.h"
#include "base/digest.h"
#include "base/output_file.h"
#include "checkpoint/storage/tiled_view.h"
#include "onnx_external/result.h"
#include "save/copy_steps.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// The chunk size for tensors that must be rearranged and cannot be read in tiles
// (checkpoint/storage/tiled_view.h). At most kMaxTiles threads rearrange at once.
inline constexpr std::uint64_t kRearrangeBytes = std::uint64_t{2} << 20;

// The copy of one item into an open file.
struct ItemCopy {
  CopyItem item;
  const RangeSource& source;
  const OutputFile& output;
  bool is_shared = false;  // several threads write to the file
  bool is_sparse = false;  // the file is new and gets the same holes as the source
  Sha* sha = nullptr;      // is updated with the bytes in order; may be null
};

// Thread-safe. The job must outlive this object.
class ItemCopier {
 public:
  // `step` is called with the number of bytes copied since the last call; if it returns false,
  // copying is cancelled.
  ItemCopier(const CopyJob& job, StepFn step)
      : job_(job), step_(std::move(step)), infinite_(job.plan.ranges.size()) {}

  // Returns the CRC-32 of the item's bytes; nullopt if the kernel moved them. `copier` is the
  // calling thread's.
  [[nodiscard]] Result<std::optional<std::uint32_t>> copy(const ItemCopy& copy,
                                                          RangeCopier& copier);

  // Returns whether a conversion has written an infinity to the range.
  [[nodiscard]] bool gave_infinity(std::size_t range) const { return infinite_[range]; }

 private:
  [[nodiscard]] const PlannedTensor& tensor_of(const ItemCopy& copy) const;
  [[nodiscard]] std::uint64_t place_of(const ItemCopy& copy) const;
  [[nodiscard]] bool splices(const ItemCopy& copy) const;
  [[nodiscard]] Status pass_hole(const ItemCopy& copy) const;
  [[nodiscard]] Result<std::uint32_t> copy_run(const ItemCopy& copy, RangeCopier& copier);
  [[nodiscard]] Result<std::uint32_t> copy_range(const ItemCopy& copy, RangeCopier& copier) const;
  [[nodiscard]] Result<std::uint32_t> rearrange(const ItemCopy& copy);
  [[nodiscard]] Result<std::uint32_t> write_tiles(const ItemCopy& copy, const TiledView& tiles);
  [[nodiscard]] Result<std::uint32_t> decode(const ItemCopy& copy);
  void look_for_infinities(const ItemCopy& copy, std::span<const std::byte> elements);
  template <typename Read>
  [[nodiscard]] Result<std::uint32_t> write_segments(const ItemCopy& copy, const Read& read);

  const CopyJob& job_;
  StepFn step_;
  std::vector<std::atomic<bool>> infinite_;
  BufferPool buffers_{kMaxTiles};
};

// Updates a digest with bytes that have been written to a file.
[[nodiscard]] Status add_written(const OutputFile& file, std::uint64_t first, std::uint64_t bytes,
                                 Sha& sha);

}  // namespace onnx_external
