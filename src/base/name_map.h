// Defines hash tables for names that come from files. A hostile file cannot slow them down by names
// with equal hashes.
#pragma once

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace onnx_external {

// A hash function: SipHash-1-3 (https://www.aumasson.jp/siphash/) with a random key per process.
// The standard library's hash has no key, so an attacker could create a file in which all names
// collide, and 100,000 such names would take half a minute.
struct NameHash {
  [[nodiscard]] std::size_t operator()(std::string_view name) const noexcept;
};

// Hash tables by name. Their iteration order differs from run to run, so names must be sorted
// before they are shown or written. NameMap and NameSet hold views of the names, which must outlive
// the tables.
template <typename Value>
using NameMap = tsl::robin_map<std::string_view, Value, NameHash, std::equal_to<>,
                               std::allocator<std::pair<std::string_view, Value>>, true>;
using NameSet = tsl::robin_set<std::string_view, NameHash, std::equal_to<>,
                               std::allocator<std::string_view>, true>;
template <typename Value>
using OwnedNameMap = tsl::robin_map<std::string, Value, NameHash, std::equal_to<>,
                                    std::allocator<std::pair<std::string, Value>>, true>;
using OwnedNameSet =
    tsl::robin_set<std::string, NameHash, std::equal_to<>, std::allocator<std::string>, true>;

// The load factor of tables. It is higher than the default, which halves their memory use without
// making look-ups slower.
inline constexpr float kNameTableLoad = 0.8F;

template <typename Table>
[[nodiscard]] Table table_for(std::size_t names) {
  Table table;
  table.max_load_factor(kNameTableLoad);
  table.reserve(names);
  return table;
}

// A set of indices into a list of names, in which an index can be found by name. Because it does
// not store names, it needs 15 to 30 bytes per name, while a NameMap needs 64 to 128. The list must
// outlive the set, and names whose indices were added must not change.
class NameIndexSet {
 public:
  using NameAt = std::function<std::string_view(std::uint32_t)>;

  NameIndexSet() = default;
  explicit NameIndexSet(const NameAt& name_at, std::size_t expected_names = 0);

  // Adds an index, unless the set already has an index of the same name. Returns the index that the
  // set has for this name.
  std::uint32_t add(std::uint32_t index) { return *indexes_.insert(index).first; }

  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const {
    const auto found = indexes_.find(name);
    return found == indexes_.end() ? std::nullopt : std::optional(*found);
  }
  [[nodiscard]] bool contains(std::string_view name) const { return indexes_.contains(name); }

 private:
  struct Hash {
    NameAt name_at;
    [[nodiscard]] std::size_t operator()(std::string_view name) const { return NameHash{}(name); }
    [[nodiscard]] std::size_t operator()(std::uint32_t index) const {
      return NameHash{}(name_at(index));
    }
  };
  struct Equal {
    using is_transparent = void;
    NameAt name_at;
    [[nodiscard]] bool operator()(std::uint32_t a, std::uint32_t b) const {
      return name_at(a) == name_at(b);
    }
    [[nodiscard]] bool operator()(std::string_view name, std::uint32_t index) const {
      return name == name_at(index);
    }
    [[nodiscard]] bool operator()(std::uint32_t index, std::string_view name) const {
      return name == name_at(index);
    }
  };

  tsl::robin_set<std::uint32_t, Hash, Equal, std::allocator<std::uint32_t>, true> indexes_;
};

}  // namespace onnx_external
