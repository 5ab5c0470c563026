// Decides, before anything is copied, which data ranges or chunks of ranges a save copies, and in
// which order. A range of a data file holds the bytes of one tensor, or of several tied tensors.
// All types are plain values, and all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/directory.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/writer.h"
#include "save/planned_bytes.h"
#include "save/record.h"

namespace onnx_external {

// A tensor larger than this is split into chunks if it would otherwise keep one thread busy while
// the others are idle. In other cases splitting does not help, because threads that write the same
// file wait for each other at the file's lock. The ratio of wall times with and without splitting
// was 0.78 for 1 GB of safetensors, 0.88 for 2 GB of float32 converted to float16, and 2.5 for 1 GB
// of a torch zip file (measured with two threads and one tensor on ext4 in memory). In the last
// case a single thread splices, so such a tensor is not split.
inline constexpr std::uint64_t kCopyChunkBytes = std::uint64_t{64} << 20;

// The number of shards that are written at the same time. Threads that write different files do not
// wait for each other. With two threads, writing 1 GB in shards of 100 MB one after another took 7
// % longer.
inline constexpr std::uint32_t kShardsAtOnce = 8;

// The approximate number of bytes of the source that a chunk of a pass reads. A pass reads a tensor
// once and produces several ranges, which are the parts of a quantized matrix.
inline constexpr std::uint64_t kPassChunkBytes = std::uint64_t{8} << 20;

// The functions below find the ranges of a pass. These ranges are consecutive in the plan. The
// first range is called the head.

// Returns the tensor that is written to a range.
[[nodiscard]] inline const PlannedTensor& tensor_of(const SavePlan& plan, std::uint32_t range) {
  return plan.tensors[plan.ranges[range].source_tensor];
}

// Returns the part of a matrix that a range holds, as a number.
[[nodiscard]] inline std::size_t part_of(const SavePlan& plan, std::uint32_t range) {
  const auto& packed = tensor_of(plan, range).packed;
  return packed ? static_cast<std::size_t>(packed->part) : 0;
}

// Returns the head of the pass that produces this range. This is the range itself or, if parts of
// the same matrix precede it, the first of these. The head holds the codes, unless these are
// linked.
[[nodiscard]] inline std::uint32_t head_of_pass(const SavePlan& plan, std::uint32_t range) {
  while (part_of(plan, range) > 0 && range > 0 && tensor_of(plan, range - 1).packed &&
         part_of(plan, range - 1) + 1 == part_of(plan, range)) {
    --range;
  }
  return range;
}

// Returns the number of ranges that the pass of a head produces, including the head.
[[nodiscard]] inline std::size_t ranges_of_pass(const SavePlan& plan, std::uint32_t head) {
  std::size_t count = 1;
  while (tensor_of(plan, head).packed && head + count < plan.ranges.size()) {
    const auto& next = tensor_of(plan, head + static_cast<std::uint32_t>(count)).packed;
    if (!next || static_cast<std::size_t>(next->part) != part_of(plan, head) + count) {
      break;
    }
    ++count;
  }
  return count;
}

// Returns the number of bytes that a pass writes to its n-th range together with `head_bytes` bytes
// of the head.
[[nodiscard]] inline std::uint64_t bytes_in_pass(const SavePlan& plan, std::uint32_t head,
                                                 std::size_t n, std::uint64_t head_bytes) {
  if (n == 0) {
    return head_bytes;
  }
  const std::uint64_t rows = tensor_of(plan, head).packed->rows;
  return head_bytes / (plan.ranges[head].bytes / rows) * (plan.ranges[head + n].bytes / rows);
}

struct CopyJob {
  const SavePlan& plan;
  SourceModels models;
  const Checkpoint& checkpoint;
  const Directory& data;
  const WriteOptions& options;
  // The ranges that are already in their files, or that another process writes.
  const WrittenRanges& done;
  RecordWriter* record;  // records the other ranges when they are written; may be null
};

// A range or a chunk of a range. For a pass, an item consists of whole rows of the head, and
// includes the same rows of the following ranges of the pass.
struct CopyItem {
  std::uint32_t range = 0;
  std::uint64_t first = 0;  // offset from the start of the range
  std::uint64_t length = 0;
};

// The steps for one file. (If one range of a pass is missing, all ranges of the pass are written
// again.)
struct FileSteps {
  std::size_t ranges = 0;  // the number of ranges in the file
  std::size_t done = 0;    // how many of them are in it already
  std::size_t items = 0;   // the number of items that write to it
};

// How a range, or a pass by its head, is divided.
struct SplitRange {
  std::uint64_t chunk_bytes = 0;  // length of each item, except the last one
  std::size_t chunks = 0;

  friend bool operator==(const SplitRange&, const SplitRange&) = default;
};

struct CopySteps {
  std::vector<CopyItem> items;                // each item is a step, in this order
  std::vector<FileSteps> files;               // same indices as SavePlan::files
  std::map<std::uint32_t, SplitRange> split;  // all passes, and the ranges that are split
  std::uint64_t bytes = 0;                    // bytes to be copied
};

// Orders files with one range by descending size, so that no thread starts a large file when the
// other threads are done. Among the files with several ranges, a few are written at a time: their
// ranges alternate, and are in ascending order of offset within each file. Ranges in job.done are
// left out.
[[nodiscard]] CopySteps plan_copy(const CopyJob& job, int threads);

// Returns whether a range consists of inline numbers of the model that are not raw bytes yet and
// must be decoded in order.
[[nodiscard]] bool is_decoded(const CopyJob& job, std::uint32_t range);

}  // namespace onnx_external
