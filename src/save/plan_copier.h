// Copies the data ranges of a plan into files in the staging folder, in parallel and largest first.
// A range of a data file holds the bytes of one tensor, or of several tied tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/progress_meter.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/item_copier.h"
#include "save/planned_bytes.h"
#include "save/record.h"
#include "tensor/quantize/quantize_rows.h"

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

// The approximate number of bytes of the source that a chunk of a matrix reads when it is
// quantized.
inline constexpr std::uint64_t kPassChunkBytes = std::uint64_t{8} << 20;

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

// A pass that is split into `chunks` items. Each item except the last one covers `chunk_bytes`
// bytes of the head, the first range of the pass.
struct SplitPass {
  Pass pass;
  std::uint64_t chunk_bytes = 0;
  std::size_t chunks = 0;
};

// An item, and the index of its pass in CopySteps::passes.
struct CopyStep {
  std::size_t pass = 0;
  CopyItem item;
};

// The steps for one file. (If one range of a pass is missing, all its ranges are written again.)
struct FileSteps {
  std::size_t ranges = 0;  // the number of ranges in the file
  std::size_t done = 0;    // how many of them are in it already
  std::size_t items = 0;   // the number of items that write to it
};

struct CopySteps {
  std::vector<SplitPass> passes;
  std::vector<CopyStep> steps;   // in this order
  std::vector<FileSteps> files;  // same indices as SavePlan::files
  std::uint64_t bytes = 0;       // bytes to be copied
};

// Decides which ranges or chunks of ranges are copied, and in which order. Orders files with one
// range by descending size, so that no thread starts a large file when the other threads are done.
// Among the files with several ranges, a few are written at a time: their ranges alternate, and are
// in ascending order of offset within each file. Ranges in job.done are left out.
[[nodiscard]] CopySteps plan_copy(const CopyJob& job, int threads);

struct CopiedFiles {
  std::vector<std::uint32_t> crcs;  // same indices as SavePlan::ranges
  // For each range in SavePlan::ranges, whether its conversion may have produced infinities. This
  // is not known exactly for ranges that a killed save converted.
  std::vector<bool> infinite;
  // The quantization error of each matrix, by the index of the range with its codes. Matrices that
  // a killed save or another process quantized are not included.
  std::map<std::uint32_t, QuantizationError> errors;
  // For each file in SavePlan::files, the SHA-1 in lower-case hex; empty strings without
  // Checksum::kSha1.
  std::vector<std::string> sha1s;
};

// Writes every file of the plan to `job.data`, except the ranges in `job.done`, which are already
// written or will be written by other processes. Checks the CRCs that the sources record, unless
// this would require reading the data twice, and syncs the files if the options say so. The written
// bytes do not depend on the number of threads. Returns the error of the first step
// that fails, regardless of which thread fails first.
[[nodiscard]] Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter);

}  // namespace onnx_external
