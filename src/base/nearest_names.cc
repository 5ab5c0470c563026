#include "base/nearest_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace onnx_external {
namespace {

// Long names usually differ at the end, so only the ends are compared.
constexpr std::size_t kComparedBytes = 256;
constexpr std::uint64_t kStepsOfALook = 8;  // the cost of a candidate that is soon discarded

std::string_view tail(std::string_view text) {
  return text.size() > kComparedBytes ? text.substr(text.size() - kComparedBytes) : text;
}

void drop_equal_ends(std::string_view& a, std::string_view& b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto front = static_cast<std::size_t>(differ.first - a.begin());
  a.remove_prefix(front);
  b.remove_prefix(front);
  const auto back = static_cast<std::size_t>(
      std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
  a.remove_suffix(back);
  b.remove_suffix(back);
}

}  // namespace

// Returns the distance, or limit + 1 if it is larger, so only cells near the diagonal matter.
std::size_t NearestNames::distance(std::string_view a, std::string_view b, std::size_t limit) {
  drop_equal_ends(a, b);
  const std::size_t far = limit + 1;
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) {
    return far;
  }
  row_.resize(b.size() + 1);
  for (std::size_t j = 0; j < row_.size(); ++j) {
    row_[j] = std::min(j, far);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t first = i > limit ? i - limit : 1;
    const std::size_t last = std::min(b.size(), i + limit);
    std::size_t diagonal = std::exchange(row_[first - 1], first == 1 ? std::min(i, far) : far);
    std::size_t best = row_[first - 1];
    for (std::size_t j = first; j <= last; ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row_[j];
      row_[j] = std::min({changed, row_[j] + 1, row_[j - 1] + 1});
      best = std::min(best, row_[j]);
    }
    steps_ -= std::min<std::uint64_t>(steps_, last - first + 1);
    if (best > limit) {
      return far;
    }
  }
  return std::min(row_[b.size()], far);
}

std::vector<std::size_t> NearestNames::of(std::string_view name,
                                          std::span<const std::string_view> candidates,
                                          std::size_t most) {
  std::size_t limit = std::max<std::size_t>(2, tail(name).size() / 3);
  std::vector<std::pair<std::size_t, std::size_t>> found;  // (distance, index), ascending
  for (std::size_t i = 0; i < candidates.size() && steps_ > 0; ++i) {
    steps_ -= std::min(steps_, kStepsOfALook);
    const std::size_t far = distance(tail(name), tail(candidates[i]), limit);
    if (far > limit) {
      continue;
    }
    const std::pair here(far, i);
    found.insert(std::upper_bound(found.begin(), found.end(), here), here);
    if (found.size() > most) {
      found.pop_back();
    }
    if (found.size() == most) {  // later ones must be nearer than the last
      if (most == 0 || found.back().first == 0) {
        break;
      }
      limit = found.back().first - 1;
    }
  }
  std::vector<std::size_t> places;
  std::transform(found.begin(), found.end(), std::back_inserter(places),
                 [](const auto& each) { return each.second; });
  return places;
}

}  // namespace onnx_external
