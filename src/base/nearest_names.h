// The names that somebody may have meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace onnx_external {

// Looks for near names until its steps are used up (a step is a cell of a table of distances: about
// a nanosecond): whoever makes a file can give it thousands of long names that differ a little, and
// each comparison of two takes as many steps as the product of their lengths. A tenth of a second
// is enough for every name of a sane model.
class NearestNames {
 public:
  static constexpr std::uint64_t kMaxSteps = 100'000'000;
  explicit NearestNames(std::uint64_t steps = kMaxSteps) : steps_(steps) {}

  // The places of the candidates nearest to `name` by edit distance, best first, at most `most`,
  // none further than a third of the name's length (at least 2). Once the steps are used up: of
  // those that were looked at, perhaps none.
  [[nodiscard]] std::vector<std::size_t> of(std::string_view name,
                                            std::span<const std::string_view> candidates,
                                            std::size_t most);

 private:
  [[nodiscard]] std::size_t distance(std::string_view a, std::string_view b, std::size_t limit);

  std::uint64_t steps_;
  std::vector<std::size_t> row_;
};

}  // namespace onnx_external
