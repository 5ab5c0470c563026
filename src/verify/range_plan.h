// Collects the ranges of data files that must be checked for one or several models in a folder. If
// several tensors have the same range and the same expected bytes, the range is checked once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "checkpoint/storage/bytes_ids.h"
#include "onnx_external/checkpoint.h"
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

}  // namespace onnx_external
