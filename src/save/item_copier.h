// Copies, converts or quantizes the bytes of tensors from their sources into the data files.
// ItemCopier::copy() chooses between all ways of doing so:
//
// - The kernel moves plain bytes whose CRC-32 the checkpoint records.
// - Other plain bytes are copied through a buffer. Holes of sparse files are left out.
// - Bytes that are spread over their storage, or converted, are read in tiles.
// - Other bytes that must be computed, and numbers of a model that are not raw bytes, are made in
//   order, a chunk at a time.
// - All parts of a quantized matrix (codes, scales, zero points) are made in one pass over its
//   rows, so that the matrix is read and quantized only once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/copy_range.h"
#include "base/output_file.h"
#include "checkpoint/storage/tiled_view.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"
#include "save/row_packer.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

// The chunk size for tensors that must be rearranged and cannot be read in tiles
// (checkpoint/storage/tiled_view.h). At most kMaxTiles threads rearrange tensors at the same time.
inline constexpr std::uint64_t kRearrangeBytes = std::uint64_t{2} << 20;

// Consecutive ranges of a plan that are written together: the parts of a quantized matrix or, for
// every other tensor, one range. The head, which is the first range, holds the codes, unless these
// are linked.
struct Pass {
  std::uint32_t head = 0;
  std::uint32_t ranges = 1;
};

// Returns all passes of a plan, in the order of its ranges.
[[nodiscard]] std::vector<Pass> passes_of(const SavePlan& plan);

// A range or a chunk of a range. For a pass with several ranges, an item consists of whole rows of
// the head, and includes the same rows of the other ranges.
struct CopyItem {
  std::uint32_t range = 0;  // the head
  std::uint64_t first = 0;  // offset from the start of the range
  std::uint64_t length = 0;
};

// The copy of one item into open files.
struct ItemCopy {
  CopyItem item;
  const RangeSource& source;
  std::span<const OutputFile* const> outputs;  // the file of each range of the pass
  bool is_shared = false;                      // several threads write to the file
  bool is_sparse = false;  // the file is new and gets the same holes as the source
};

struct CopiedItem {
  // The number and the CRC-32 of the item's bytes in each range of the pass; no CRC-32 if the
  // kernel moved them.
  std::array<std::uint64_t, kMatrixParts> bytes{};
  std::array<std::optional<std::uint32_t>, kMatrixParts> crcs{};
  QuantizationError error;
};

// Belong to one thread, and are reused from item to item.
struct CopyBuffers {
  RangeCopier copier;
  std::optional<PackingBuffers> packing;  // made when a pass needs them
};

// Copies the items of a plan. Thread-safe. All arguments must outlive this object.
class ItemCopier {
 public:
  // `step` is called with the number of bytes copied since the last call. If it returns false,
  // copying is cancelled.
  ItemCopier(const SavePlan& plan, const SourceModels& models, const Checkpoint& checkpoint,
             StepFn step)
      : plan_(plan),
        models_(models),
        checkpoint_(checkpoint),
        step_(std::move(step)),
        infinite_(plan.ranges.size()) {}

  [[nodiscard]] Result<CopiedItem> copy(const ItemCopy& copy, CopyBuffers& buffers);

  // Returns whether a conversion has written an infinity to the range.
  [[nodiscard]] bool gave_infinity(std::size_t range) const { return infinite_[range]; }

 private:
  [[nodiscard]] const PlannedTensor& tensor_of(const ItemCopy& copy) const {
    return onnx_external::tensor_of(plan_, copy.item.range);
  }
  [[nodiscard]] std::uint64_t place_of(const ItemCopy& copy) const {
    return plan_.ranges[copy.item.range].offset + copy.item.first;
  }
  [[nodiscard]] bool splices(const ItemCopy& copy) const;
  [[nodiscard]] Result<CopiedItem> pack(const ItemCopy& copy, PackingBuffers& buffers);
  [[nodiscard]] Result<std::uint32_t> copy_between_holes(const ItemCopy& copy, RangeCopier& copier);
  [[nodiscard]] Result<std::uint32_t> copy_run(const ItemCopy& copy, RangeCopier& copier);
  [[nodiscard]] Result<std::uint32_t> copy_range(const ItemCopy& copy, RangeCopier& copier) const;
  [[nodiscard]] Result<std::uint32_t> rearrange(const ItemCopy& copy);
  [[nodiscard]] Result<std::uint32_t> write_tiles(const ItemCopy& copy, const TiledView& tiles);
  [[nodiscard]] Result<std::uint32_t> decode(const ItemCopy& copy);
  void look_for_infinities(const ItemCopy& copy, std::span<const std::byte> elements);
  template <typename Read>
  [[nodiscard]] Result<std::uint32_t> write_segments(const ItemCopy& copy, const Read& read);

  const SavePlan& plan_;
  SourceModels models_;
  const Checkpoint& checkpoint_;
  StepFn step_;
  std::vector<std::atomic<bool>> infinite_;
  BufferPool buffers_{kMaxTiles};
};

}  // namespace onnx_external
