// Decides which chunks of parts are copied, and in which order, before anything is copied. Plain
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
#include "save/record.h"
#include "save/source_models.h"

namespace onnx_external {

// A larger tensor is split when it would keep one thread busy while the others wait. Otherwise
// splitting gains nothing, because two threads wait for each other at the lock of their file. In a
// file of several tensors they do so anyway. Measured with two threads and one tensor on ext4 in
// memory, as a ratio of wall times: 0.78 for 1 GB of safetensors, 0.88 for 2 GB of float32 that
// become float16. But 2.5 for 1 GB of a torch zip, which one thread splices: that is not split.
inline constexpr std::uint64_t kCopyChunkBytes = std::uint64_t{64} << 20;

// So many shards are filled side by side, because threads in different files do not wait for each
// other. Measured with two threads: 1 GB in shards of 100 MB takes 7 % longer one by one.
inline constexpr std::uint32_t kShardsAtOnce = 8;

struct CopyJob {
  const SavePlan& plan;
  SourceModels models;
  const Checkpoint& checkpoint;
  const Directory& data;
  const WriteOptions& options;
  const WrittenParts& done;  // are in their files already, or will be by another process
  RecordWriter* record;      // gets every other part as soon as it is written; may be null
  // Empty, or which files have holes where their sources have (save/sparse_files.h).
  std::vector<bool> sparse = {};
};

// A part or a chunk of one.
struct CopyItem {
  std::uint32_t part = 0;
  std::uint64_t first = 0;  // counted from the start of the part
  std::uint64_t length = 0;
};

// The parts of a file by who writes them.
struct FileParts {
  std::size_t all = 0;
  std::size_t done = 0;
};

struct CopySteps {
  std::vector<CopyItem> items;                  // each is a step, in this order
  std::vector<FileParts> files;                 // index = SavePlan::files
  std::map<std::uint32_t, std::size_t> shared;  // files that several items write: how many do
  std::map<std::uint32_t, std::size_t> split;   // parts in chunks of chunk_bytes(): how many
  std::uint64_t bytes = 0;                      // to be copied
};

// Files of their own: the largest first, so that no thread starts it when the others are done.
// Files of several parts: some at a time, their parts in turn, by rising offset. No part that is
// done.
[[nodiscard]] CopySteps plan_copy(const CopyJob& job, int threads);

// The chunks that a part is split into: kCopyChunkBytes, or as many as whole tiles make.
[[nodiscard]] std::uint64_t chunk_bytes(const CopyJob& job, std::uint32_t part);

// Numbers of the model that become raw bytes one after the other.
[[nodiscard]] bool is_decoded(const CopyJob& job, std::uint32_t part);

}  // namespace onnx_external
