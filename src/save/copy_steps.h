// Which pieces of a plan's parts are copied, in which steps: a plan of the copying, made before it.
// Plain values; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/directory.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/writer.h"
#include "save/journal.h"

namespace onnx_external {

// A tensor larger than this is split when it would keep one thread busy while the others wait; else
// splitting gains nothing, because two threads in one file wait for its lock. In a file of several
// tensors they do so anyway.
inline constexpr std::uint64_t kCopyChunkBytes = std::uint64_t{64} << 20;

// So many shards are filled side by side: threads in different files do not wait for each other.
inline constexpr std::uint32_t kShardsAtOnce = 8;

// Files up to this size take longer to create than to fill, and a folder takes one new name at a
// time. So they are created some at once, as a rule by one thread while others fill those before.
inline constexpr std::uint64_t kMaxBatchedBytes = std::uint64_t{64} << 10;
inline constexpr std::size_t kFilesInBatch = 16;

struct CopyJob {
  const SavePlan& plan;
  const Model& model;
  const Checkpoint& checkpoint;
  const Directory& data;
  const WriteOptions& options;
  const WrittenParts& kept;  // are in their files already
  Journal* journal;          // gets every other part as soon as it is written; may be null
  // Empty, or which parts other processes write (save/teamwork.h). Files that have such parts and
  // others exist already, and get no SHA-1 here.
  std::vector<bool> of_others = {};
  // Empty, or which files have holes where their sources have (save/sparse_files.h).
  std::vector<bool> sparse = {};
  // What the calling thread does before it copies, while the others copy already; may be empty.
  std::function<Status()> own = {};

  [[nodiscard]] bool is_of_others(std::size_t part) const {
    return !of_others.empty() && of_others[part];
  }
};

// A part or a piece of one.
struct CopyItem {
  std::uint32_t part = 0;
  std::uint64_t first = 0;  // counted from the start of the part
  std::uint64_t length = 0;
};

struct CopyStep {
  enum class Kind : std::uint8_t {
    kCopy,    // one item
    kCreate,  // the files of a batch
    kFill,    // a batch, which an earlier step has created or creates now
  };
  Kind kind = Kind::kCopy;
  std::size_t number = 0;  // of the item, or of the batch
};

// The parts of a file by who writes them.
struct FileParts {
  std::size_t all = 0;
  std::size_t kept = 0;
  std::size_t of_others = 0;
};

struct CopySteps {
  std::vector<CopyItem> items;
  // Items from here on are whole small files, in batches of kFilesInBatch; the last may have fewer.
  std::size_t first_batched = 0;
  std::vector<CopyStep> steps;
  std::vector<FileParts> files;                 // index = SavePlan::files
  std::map<std::uint32_t, std::size_t> shared;  // files that several items write: how many do
  std::map<std::uint32_t, std::size_t> split;   // parts in pieces of chunk_bytes(): how many
  std::uint64_t bytes = 0;                      // to be copied

  [[nodiscard]] std::size_t batches() const {
    return (items.size() - first_batched + kFilesInBatch - 1) / kFilesInBatch;
  }
  [[nodiscard]] std::span<const CopyItem> batch(std::size_t number) const;
};

// Files of their own: the largest first, so that no thread starts it when the others are done.
// Files of several parts: some at a time, their parts in turn, by rising offset. No part that is
// kept or of others. Without `with_batches` every small file is a step of its own.
[[nodiscard]] CopySteps plan_copy(const CopyJob& job, int threads, bool with_batches);

// The pieces that a part is split into: kCopyChunkBytes, or as many as whole tiles make.
[[nodiscard]] std::uint64_t chunk_bytes(const CopyJob& job, std::uint32_t part);

// Numbers of the model that become raw bytes one after the other.
[[nodiscard]] bool is_decoded(const CopyJob& job, std::uint32_t part);

}  // namespace onnx_external
