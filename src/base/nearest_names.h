// Finds the names that a misspelled one may have meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace onnx_external {

// Searches with a limit on its total work, because a hostile file may have thousands of long,
// similar names. Work is counted in steps: a step is a cell of the edit distance table and takes
// about a nanosecond, and comparing two names takes as many steps as the product of their lengths.
// The default limit, a tenth of a second, suffices for every sane model.
class NearestNames {
 public:
  static constexpr std::uint64_t kMaxSteps = 100'000'000;
  explicit NearestNames(std::uint64_t steps = kMaxSteps) : steps_(steps) {}

  // The indices of at most `most` candidates nearest to `name` by edit distance, best first. The
  // distance is at most a third of the name's length, or 2 if that is more. Once the steps are used
  // up, only the candidates seen so far count, perhaps none.
  [[nodiscard]] std::vector<std::size_t> of(std::string_view name,
                                            std::span<const std::string_view> candidates,
                                            std::size_t most);

 private:
  [[nodiscard]] std::size_t distance(std::string_view a, std::string_view b, std::size_t limit);

  std::uint64_t steps_;
  std::vector<std::size_t> row_;
};

}  // namespace onnx_external
