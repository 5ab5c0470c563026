// Limits the work for walking over the values of a pickle.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::size_t kMaxWalkDepth = 1000;
inline constexpr std::size_t kMaxWalkTensors = 4'000'000;
inline constexpr std::size_t kMaxWalkPathBytes = std::size_t{1} << 20;  // in one name

// A budget that is proportional to the number of nodes. Because values can be shared, a small file
// can list the same tensor under thousands of paths, while normal files do so a few times. All
// functions fail with kUnsupported once the budget is used up.
class WalkBudget {
 public:
  explicit WalkBudget(const Pickle& pickle)
      : visits_(65'536 + 16 * std::uint64_t{pickle.node_count()}),
        name_bytes_((std::uint64_t{16} << 20) + 64 * std::uint64_t{pickle.node_count()}) {}

  // Charges visits. A shared part is charged each time it is visited, because each visit takes
  // time.
  [[nodiscard]] Status visit(std::uint64_t count = 1) { return take(visits_, count); }
  // Charges one visit, and more for a long text.
  [[nodiscard]] Status visit_text(std::string_view text) {
    return visit(1 + text.size() / kTextBytesPerVisit);
  }
  // Charges one visit for each item, and more for long keys.
  [[nodiscard]] Status visit_items(const Pickle& pickle,
                                   const std::vector<std::pair<NodeId, NodeId>>& items) {
    std::uint64_t cost = items.size();
    for (const auto& [key, value] : items) {
      cost += pickle.string(key).value_or("").size() / kTextBytesPerVisit;
    }
    return visit(cost);
  }
  // Charges for a name of this many bytes that the walk builds.
  [[nodiscard]] Status name(std::size_t bytes) { return take(name_bytes_, bytes); }

  static tl::unexpected<Error> too_much() {
    return fail(ErrorCode::kUnsupported,
                "the pickle repeats its parts too often, under too many names to list them");
  }

 private:
  static constexpr std::uint64_t kTextBytesPerVisit = 64;

  [[nodiscard]] static Status take(std::uint64_t& left, std::uint64_t count) {
    if (count > left) {
      return too_much();
    }
    left -= count;
    return {};
  }

  std::uint64_t visits_;
  std::uint64_t name_bytes_;
};

}  // namespace onnx_external
