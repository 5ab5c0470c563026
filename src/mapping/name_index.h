// Finds names of keys (tensors of a checkpoint) and slots (values of a graph) by refined form, by
// the whole name, and by prefix. In the refined form of a name, dots are replaced by underscores
// (docs/mapping.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "mapping/task.h"

namespace onnx_external {

// An index of names, which must outlive the index. The first look-up by refined form builds a table
// in linear time, and later ones take constant time. The first look-up by name or prefix sorts the
// names, and later ones take logarithmic time. For use by one thread at a time.
class NameIndex {
 public:
  struct Entry {
    std::string_view name;
    std::string_view refined;
    std::uint32_t id = 0;
  };

  explicit NameIndex(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  NameIndex(const NameIndex&) = delete;  // its table refers to it
  NameIndex& operator=(const NameIndex&) = delete;

  // Returns the ids of all names with this refined form, in ascending order.
  [[nodiscard]] std::span<const std::uint32_t> refined_as(std::string_view refined) {
    build();
    const auto found = bucket_of_.find(refined);
    if (!found) {
      return {};
    }
    const Bucket& bucket = buckets_[*found];
    return std::span(ids_).subspan(bucket.first, bucket.count);
  }

  // Returns all names that start with `prefix`.
  [[nodiscard]] std::span<const Entry> under(std::string_view prefix) {
    if (prefix.empty()) {
      return entries_;
    }
    sort();
    const auto cut = [&](const Entry& e) { return e.name.substr(0, prefix.size()); };
    const auto first = std::partition_point(entries_.begin(), entries_.end(),
                                            [&](const Entry& e) { return cut(e) < prefix; });
    const auto last = std::partition_point(first, entries_.end(),
                                           [&](const Entry& e) { return cut(e) == prefix; });
    return {first, last};
  }

  // Returns all entries with exactly this name, by ascending id.
  [[nodiscard]] std::span<const Entry> called(std::string_view name) {
    sort();
    const auto first = std::partition_point(entries_.begin(), entries_.end(),
                                            [&](const Entry& e) { return e.name < name; });
    const auto last =
        std::partition_point(first, entries_.end(), [&](const Entry& e) { return e.name == name; });
    return {first, last};
  }

  [[nodiscard]] std::span<const Entry> all() const { return entries_; }

  // Returns all names in ascending order. Changes the order of all().
  [[nodiscard]] std::span<const Entry> sorted() {
    sort();
    return entries_;
  }

 private:
  struct Bucket {
    std::string_view refined;
    std::uint32_t first = 0;  // index of its first id
    std::uint32_t count = 0;  // number of its ids
  };

  void sort() {
    if (sorted_) {
      return;
    }
    build();  // before sorting, while the ids are in ascending order
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.name, a.id) < std::pair(b.name, b.id);
    });
    sorted_ = true;
  }

  // Builds the table of refined forms, unless it exists.
  void build() {
    if (!buckets_.empty()) {
      return;
    }
    bucket_of_ = NameIndexSet([this](std::uint32_t bucket) { return buckets_[bucket].refined; },
                              entries_.size());
    std::vector<std::uint32_t> own;  // the bucket of each entry
    own.reserve(entries_.size());
    buckets_.reserve(entries_.size());
    for (const Entry& entry : entries_) {
      const auto next = static_cast<std::uint32_t>(buckets_.size());
      buckets_.push_back({.refined = entry.refined});
      own.push_back(bucket_of_.add(next));
      if (own.back() != next) {
        buckets_.pop_back();
      }
      ++buckets_[own.back()].count;
    }
    std::uint32_t start = 0;
    for (Bucket& bucket : buckets_) {
      bucket.first = start;
      start += std::exchange(bucket.count, 0);  // counts up again while the ids are placed
    }
    ids_.resize(entries_.size());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      Bucket& bucket = buckets_[own[i]];
      ids_[bucket.first + bucket.count++] = entries_[i].id;
    }
  }

  std::vector<Entry> entries_;
  bool sorted_ = false;
  std::vector<std::uint32_t> ids_;  // grouped by refined form
  std::vector<Bucket> buckets_;
  NameIndexSet bucket_of_;  // finds buckets by refined form
};

[[nodiscard]] inline std::vector<NameIndex::Entry> open_slots(const MappingTask& task) {
  std::vector<NameIndex::Entry> entries;
  entries.reserve(task.slot_names.size());
  for (std::uint32_t i = 0; i < task.slot_names.size(); ++i) {
    if (task.slot_names[i].open) {
      entries.push_back({task.slot_names[i].name, task.slot_names[i].refined, i});
    }
  }
  return entries;
}

[[nodiscard]] inline std::vector<NameIndex::Entry> usable_keys(const MappingTask& task) {
  std::vector<NameIndex::Entry> entries;
  entries.reserve(task.key_names.size());
  for (std::uint32_t i = 0; i < task.key_names.size(); ++i) {
    if (task.key_names[i].usable && !task.key_names[i].name.empty()) {
      entries.push_back({task.key_names[i].name, task.key_names[i].refined, i});
    }
  }
  return entries;
}

}  // namespace onnx_external
