// Decides which chunks of ranges are copied, and in which order, before anything is copied. Plain
// values; safe from any thread.
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

// A tensor of more bytes is split into chunks if it would otherwise keep one thread busy while the
// others wait. Splitting gains nothing in other cases, because two threads that write one file wait
// for each other at the file's lock. In a file of several tensors they do so anyway. Measured with
// two threads and one tensor on ext4 in memory, as a ratio of wall times: 0.78 for 1 GB of
// safetensors, 0.88 for 2 GB of float32 that become float16. But 2.5 for 1 GB of a torch zip, which
// one thread splices: that is not split.
inline constexpr std::uint64_t kCopyChunkBytes = std::uint64_t{64} << 20;

// The number of shards that are written at the same time, because threads do not wait for each
// other in different files. Measured with two threads: 1 GB in shards of 100 MB takes 7 % longer
// one by one.
inline constexpr std::uint32_t kShardsAtOnce = 8;

// About how many bytes of the source a chunk of a pass reads.
inline constexpr std::uint64_t kPassChunkBytes = std::uint64_t{8} << 20;

// A pass reads a tensor once and makes several ranges, the parts of a quantized matrix, at the
// places that the plan fixed.

// The tensor that is written to a range.
[[nodiscard]] inline const PlannedTensor& tensor_of(const SavePlan& plan, std::uint32_t range) {
  return plan.tensors[plan.ranges[range].source_tensor];
}

// The part of a matrix that a range has.
[[nodiscard]] inline std::size_t part_of(const SavePlan& plan, std::uint32_t range) {
  const auto& packed = tensor_of(plan, range).packed;
  return packed ? static_cast<std::size_t>(packed->part) : 0;
}

// The range whose pass makes this one: itself, or the first part of the same matrix before it. That
// is the codes, unless they are linked.
[[nodiscard]] inline std::uint32_t head_of_pass(const SavePlan& plan, std::uint32_t range) {
  while (part_of(plan, range) > 0 && range > 0 && tensor_of(plan, range - 1).packed &&
         part_of(plan, range - 1) + 1 == part_of(plan, range)) {
    --range;
  }
  return range;
}

// Returns the number of ranges that the pass of a head makes, including the head.
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

struct CopyJob {
  const SavePlan& plan;
  SourceModels models;
  const Checkpoint& checkpoint;
  const Directory& data;
  const WriteOptions& options;
  const WrittenRanges& done;  // are in their files already, or will be by another process
  RecordWriter* record;       // gets every other range as soon as it is written; may be null
};

// A range or a chunk of one. An item of a pass has whole rows of its head, and includes the same
// rows of the ranges that follow it.
struct CopyItem {
  std::uint32_t range = 0;
  std::uint64_t first = 0;  // counted from the start of the range
  std::uint64_t length = 0;
};

// The number of ranges of a file, and how many of them are in it already. (All ranges of a pass are
// made again if one of them is missing.)
struct FileRanges {
  std::size_t all = 0;
  std::size_t done = 0;
};

struct CopySteps {
  std::vector<CopyItem> items;                  // each is a step, in this order
  std::vector<FileRanges> files;                // index = SavePlan::files
  std::map<std::uint32_t, std::size_t> shared;  // files that several items write: how many do
  std::map<std::uint32_t, std::size_t> split;   // ranges in chunks of chunk_bytes(): how many
  std::uint64_t bytes = 0;                      // to be copied
};

// Orders files with one range from large to small, so that no thread starts a large one when the
// others are done. Of the files with several ranges, a few are written at a time: their ranges come
// in turn, by rising offset in each file. Parts that are done are left out.
[[nodiscard]] CopySteps plan_copy(const CopyJob& job, int threads);

// The size of the chunks that a range is split into: kCopyChunkBytes, or a similar number of bytes
// that is whole tiles.
[[nodiscard]] std::uint64_t chunk_bytes(const CopyJob& job, std::uint32_t range);

// The size of the chunks, in bytes of the head, that a pass is cut into, independent of the number
// of threads, so that its errors are summed in the same order.
[[nodiscard]] std::uint64_t pass_chunk_bytes(const CopyJob& job, std::uint32_t head);

// True for inline numbers of the model that are not raw bytes yet and must be decoded in order.
[[nodiscard]] bool is_decoded(const CopyJob& job, std::uint32_t range);

}  // namespace onnx_external
