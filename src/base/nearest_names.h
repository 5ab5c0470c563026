// Finds names that are similar to a misspelled name, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace onnx_external {

// Searches for similar names. The total work is limited, because a hostile file may have thousands
// of long, similar names. It is counted in steps of about a nanosecond. A step computes one cell of
// the edit distance table, so a comparison of two names takes as many steps as the product of their
// lengths. The default limit, about a tenth of a second, is sufficient for normal models.
class NearestNames {
 public:
  static constexpr std::uint64_t kMaxSteps = 100'000'000;
  explicit NearestNames(std::uint64_t steps = kMaxSteps) : steps_(steps) {}

  // Returns the indices of at most `most` candidates with the smallest edit distance to `name`,
  // best first. The distance is at most a third of the name's length, or 2 if that is more. Once
  // the steps are used up, only the candidates compared so far are considered.
  [[nodiscard]] std::vector<std::size_t> of(std::string_view name,
                                            std::span<const std::string_view> candidates,
                                            std::size_t most);

 private:
  [[nodiscard]] std::size_t distance(std::string_view a, std::string_view b, std::size_t limit);

  std::uint64_t steps_;
  std::vector<std::size_t> row_;
};

}  // namespace onnx_external
