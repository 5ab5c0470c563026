// Collects the ranges of data files that must be checked for one or several models in a folder, and
// splits them into tasks for threads. If several tensors have the same range and the same expected
// bytes, the range is checked once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/directory.h"
#include "checkpoint/storage/bytes_ids.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/verify.h"
#include "verify/findings.h"
#include "verify/range_check.h"

namespace onnx_external {

// The checkpoint, which may be null, and the entries must outlive this object. For use by one
// thread at a time.
class RangePlan {
 public:
  explicit RangePlan(const Checkpoint* checkpoint);

  struct Added {
    std::size_t check = 0;    // index into checks()
    std::uint64_t bytes = 0;  // size of the range; 0 if the same model has already added it
  };
  // Adds the range of a tensor. `model` is the index of the tensor's model.
  Added add(const ExternalEntry& entry, const std::optional<WantedTensor>& equals,
            std::optional<std::uint32_t> written_crc, bool wants_crc, std::size_t model);

  [[nodiscard]] std::span<const RangeCheck> checks() const { return checks_; }
  [[nodiscard]] std::uint64_t bytes() const;  // total size of all checked ranges

 private:
  using Expected = std::optional<std::size_t>;  // a number of BytesIds

  const Checkpoint* checkpoint_;
  BytesIds ids_;
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t, bool, Expected>, std::size_t>
      known_;
  std::vector<RangeCheck> checks_;
  std::vector<std::size_t> last_model_;  // for each check, the model that last added it
};

struct CheckChunk {
  std::size_t check = 0;
  std::uint64_t first = 0;  // offset from the start of the range
  std::uint64_t length = 0;
};

// A task for a thread, which is one chunk, or some rows of all parts of a matrix.
struct CheckTask {
  std::size_t chunk = 0;   // index of the first chunk
  std::size_t chunks = 1;  // number of chunks; for a matrix, one for each part
};

struct CheckWork {
  std::vector<CheckChunk> chunks;
  std::vector<CheckTask> tasks;
};

// Returns the files whose distinct ranges together are far larger than the file.
[[nodiscard]] std::set<std::string_view> overused_files(const Directory& folder,
                                                        std::span<const RangeCheck> checks);

// Splits the checks. The chunks of one check are in order. Ranges in the files `skipped` are not
// read. `checkpoint` is that of check_ranges().
[[nodiscard]] CheckWork cut_checks(const Directory& folder, std::span<const RangeCheck> checks,
                                   const Checkpoint* checkpoint, const VerifyOptions& options,
                                   const std::set<std::string_view>& skipped);

}  // namespace onnx_external
