// Reads ranges of data files in parallel for the verifier. Checks that the files are not links,
// compares the bytes with the checkpoint, and computes CRC-32s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/byte_comparer.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/progress_meter.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// A tensor of the checkpoint in the form that the model must contain.
struct WantedTensor {
  std::size_t source_index = 0;             // index into Checkpoint::tensors()
  Recipe recipe = {};                       // the first step of the conversion
  std::optional<DType> cast_to = {};        // type to which values are then converted
  std::optional<PackedTensor> packed = {};  // if quantized, the part of the matrix
  TensorSource source = TensorSource::kCheckpoint;
};

// The message of the finding for a tensor of type LazyBytes. It does not state which byte differs,
// because the bytes cannot be produced again.
inline constexpr const char* kNotWhatWasMade =
    "its CRC-32 differs from that of the bytes that were produced";

// A range of a file in the model's folder or below it, and the checks to perform.
struct RangeCheck {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<WantedTensor> equals;
  // ExpectedTensor::written_crc; used with `equals` and Compare::kRecordedCrc.
  std::optional<std::uint32_t> written_crc = {};
  bool wants_crc = false;
};

struct Fault {
  FindingCode code = FindingCode::kMissingFile;
  std::string message;
};

struct RangeAnswer {
  // Set if the range could not be read. In this case all other members are meaningless.
  std::optional<Fault> fault;
  std::optional<ByteDifference> difference;  // positions are counted from the start of the range
  bool own = false;         // used with `equals`: the range is in a checkpoint file, not a copy
  bool hard_links = false;  // the file has several names
  bool hub_link = false;    // the file is a link in the Hub's cache
  std::uint32_t crc32 = 0;  // set with wants_crc
};

// Performs the checks, and returns one answer per check, in order. The answers do not depend on the
// number of threads. `checkpoint` may be null if no check has `equals`. Each thread needs two
// buffers of at most 1 MiB, and up to kMaxTiles threads at a time also need a tile
// (checkpoint/storage/tiled_view.h). If a range is in one of the checkpoint's own files, it is read
// only to check a CRC-32 that the checkpoint records. Fails if the checkpoint cannot be read or is
// damaged, or if the caller cancels.
[[nodiscard]] Result<std::vector<RangeAnswer>> check_ranges(const std::filesystem::path& folder,
                                                            std::span<const RangeCheck> checks,
                                                            const Checkpoint* checkpoint,
                                                            const VerifyOptions& options,
                                                            ProgressMeter& meter);

// Returns the lower-case hex SHA-1 of a whole file below `folder`.
[[nodiscard]] Result<std::string> file_sha1(const std::filesystem::path& folder,
                                            const std::string& location, ProgressMeter& meter);

// Converts an error of open_data_file or of reading to a finding.
[[nodiscard]] Fault fault_of(const Error& error);

// The locations of files whose contents open_range() has checked. Thread-safe.
class CheckedFiles {
 public:
  [[nodiscard]] bool contains(const std::string& location) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return locations_.contains(location);
  }
  void add(const std::string& location) {
    const std::lock_guard<std::mutex> lock(mutex_);
    locations_.insert(location);
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> locations_;
};

// Opens the file, and records in `answer` whether it has hard links or is a link in the Hub's
// cache. If the file does not exist or does not contain the range, returns null and sets
// answer.fault.
[[nodiscard]] std::shared_ptr<const SourceFile> open_range(const Directory& folder,
                                                           const RangeCheck& check,
                                                           CheckedFiles& checked,
                                                           RangeAnswer& answer);

}  // namespace onnx_external
