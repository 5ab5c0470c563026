// Looks names up by their refined form, and by a prefix of the name itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace onnx_external {

// Holds views of the names, which must outlive it. Building is linear, refined lookups constant,
// prefix lookups logarithmic after the first, which sorts. One thread at a time.
class NameIndex {
 public:
  struct Entry {
    std::string_view name;
    std::string_view refined;
    std::uint32_t id = 0;
  };

  explicit NameIndex(std::vector<Entry> entries) : entries_(std::move(entries)) {
    buckets_.reserve(entries_.size());
    for (const Entry& entry : entries_) {
      ++buckets_[entry.refined].count;
    }
    std::size_t start = 0;
    for (const Entry& entry : entries_) {
      auto& [first, count] = buckets_[entry.refined];
      if (first == kNotPlaced) {
        first = start;
        start += count;
        count = 0;  // counts again while the ids are put into their places
      }
    }
    ids_.resize(entries_.size());
    for (const Entry& entry : entries_) {
      auto& [first, count] = buckets_[entry.refined];
      ids_[first + count++] = entry.id;
    }
  }

  // The ids of all names with this refined form, ascending.
  [[nodiscard]] std::span<const std::uint32_t> refined_as(std::string_view refined) const {
    const auto found = buckets_.find(refined);
    if (found == buckets_.end()) {
      return {};
    }
    return std::span(ids_).subspan(found->second.first, found->second.count);
  }

  // All names that start with `prefix`.
  [[nodiscard]] std::span<const Entry> under(std::string_view prefix) {
    if (prefix.empty()) {
      return entries_;
    }
    if (!sorted_) {
      std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        return std::pair(a.name, a.id) < std::pair(b.name, b.id);
      });
      sorted_ = true;
    }
    const auto cut = [&](const Entry& e) { return e.name.substr(0, prefix.size()); };
    const auto first = std::partition_point(entries_.begin(), entries_.end(),
                                            [&](const Entry& e) { return cut(e) < prefix; });
    const auto last = std::partition_point(first, entries_.end(),
                                           [&](const Entry& e) { return cut(e) == prefix; });
    return {first, last};
  }

  [[nodiscard]] std::span<const Entry> all() const { return entries_; }

 private:
  static constexpr std::size_t kNotPlaced = static_cast<std::size_t>(-1);
  struct Bucket {
    std::size_t first = kNotPlaced;  // of its ids
    std::size_t count = 0;           // how many
  };

  std::vector<Entry> entries_;
  bool sorted_ = false;
  std::vector<std::uint32_t> ids_;  // grouped by refined form
  std::unordered_map<std::string_view, Bucket> buckets_;
};

}  // namespace onnx_external
