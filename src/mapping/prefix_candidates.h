// Collects the prefixes that, if they are added or removed, make names in a checkpoint match names
// in a graph. Only the best prefixes are kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "mapping/key_prefix.h"

namespace onnx_external {

// A prefix that makes names match, and the numbers of matches.
struct PrefixCandidate {
  std::string_view prefix;  // a view of a name in the task
  KeyPrefix::Kind kind = KeyPrefix::Kind::kNone;
  std::uint64_t agreeing = 0;  // number of slots that it may fill
  std::uint64_t names = 0;
};

// The best candidates. Because a checkpoint may have as many prefixes as its names have components,
// the prefixes with the fewest matches are dropped.
class PrefixCandidates {
 public:
  void add(const PrefixCandidate& candidate) {
    kept_.push_back(candidate);
    if (kept_.size() == 2 * kMostCandidates) {
      std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(kMostCandidates),
                       kept_.end(), is_before);
      for (std::size_t i = kMostCandidates; i < kept_.size(); ++i) {
        most_left_out_ = std::max(most_left_out_, kept_[i].agreeing);
      }
      kept_.resize(kMostCandidates);
    }
  }
  void sort() { std::sort(kept_.begin(), kept_.end(), is_before); }

  [[nodiscard]] const std::vector<PrefixCandidate>& kept() const { return kept_; }
  // Returns the largest number of slots that a dropped prefix may fill.
  [[nodiscard]] std::uint64_t most_left_out() const { return most_left_out_; }

 private:
  static constexpr std::size_t kMostCandidates = 50'000;

  static bool is_before(const PrefixCandidate& a, const PrefixCandidate& b) {
    const auto order = [](const PrefixCandidate& c) {
      return std::tuple(~c.agreeing, ~c.names, c.kind, c.prefix.size(), c.prefix);
    };
    return order(a) < order(b);
  }

  std::vector<PrefixCandidate> kept_;
  std::uint64_t most_left_out_ = 0;
};

}  // namespace onnx_external
