// Copies the data files of a plan into the staging folder: in parallel, largest first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/progress_meter.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/journal.h"

namespace onnx_external {

// A tensor larger than this is split when it would keep one thread busy while the others wait; else
// splitting gains nothing, because two threads in one file wait for its lock. In a file of several
// tensors they do so anyway.
inline constexpr std::uint64_t kCopyChunkBytes = std::uint64_t{64} << 20;

// Tensors that must be rearranged are read in pieces of this size, by at most kMaxRearranging
// threads at once: together with the scratch memory of Checkpoint::read() that stays below 48 MiB.
inline constexpr std::uint64_t kRearrangeBytes = std::uint64_t{2} << 20;
inline constexpr int kMaxRearranging = 4;

// So many shards are filled side by side: threads in different files do not wait for each other.
inline constexpr std::uint32_t kShardsAtOnce = 8;

struct CopiedFiles {
  std::vector<std::uint32_t> crcs;  // index = SavePlan::parts
  // Index = SavePlan::files; lower-case hex; empty texts without Checksum::kSha1.
  std::vector<std::string> sha1s;
};

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
};

// Writes every file of the plan, but for the parts that are kept or of others, into `job.data`,
// checks the CRCs that the sources record where that needs no second reading, and syncs the files
// if asked. The bytes do not depend on the number of threads, nor does the error: that of the first
// failing part in an order that is fixed.
[[nodiscard]] Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter);

// The lower-case hex SHA-1 of a file that is complete.
[[nodiscard]] Result<std::string> data_file_sha1(const Directory& data, const PlannedFile& file);

}  // namespace onnx_external
