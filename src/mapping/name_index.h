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

// Holds views of the names, which must outlive it. Building is n log n, refined lookups constant,
// prefix lookups logarithmic.
class NameIndex {
 public:
  struct Entry {
    std::string_view name;
    std::string_view refined;
    std::uint32_t id = 0;
  };

  explicit NameIndex(std::vector<Entry> entries) : by_name_(std::move(entries)) {
    std::vector<Entry> by_refined = by_name_;
    std::sort(by_refined.begin(), by_refined.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.refined, a.id) < std::pair(b.refined, b.id);
    });
    std::sort(by_name_.begin(), by_name_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.name, a.id) < std::pair(b.name, b.id);
    });
    ids_.reserve(by_refined.size());
    buckets_.reserve(by_refined.size());
    for (const Entry& entry : by_refined) {
      auto& bucket = buckets_.try_emplace(entry.refined, ids_.size(), 0U).first->second;
      ++bucket.second;
      ids_.push_back(entry.id);
    }
  }

  // The ids of all names with this refined form, ascending.
  [[nodiscard]] std::span<const std::uint32_t> refined_as(std::string_view refined) const {
    const auto found = buckets_.find(refined);
    if (found == buckets_.end()) {
      return {};
    }
    return std::span(ids_).subspan(found->second.first, found->second.second);
  }

  // All names that start with `prefix`, sorted by name.
  [[nodiscard]] std::span<const Entry> under(std::string_view prefix) const {
    const auto cut = [&](const Entry& e) { return e.name.substr(0, prefix.size()); };
    const auto first = std::partition_point(by_name_.begin(), by_name_.end(),
                                            [&](const Entry& e) { return cut(e) < prefix; });
    const auto last = std::partition_point(first, by_name_.end(),
                                           [&](const Entry& e) { return cut(e) == prefix; });
    return {first, last};
  }

  [[nodiscard]] std::span<const Entry> all() const { return by_name_; }

 private:
  std::vector<Entry> by_name_;
  std::vector<std::uint32_t> ids_;  // grouped by refined form
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> buckets_;
};

}  // namespace onnx_external
