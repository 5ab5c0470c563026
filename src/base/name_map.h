// Hash tables for names that come from files.
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

// SipHash-1-3 (https://www.aumasson.jp/siphash/) with a random key per process. The standard
// library's hash has no key, so an attacker can write a file whose names all collide; 100,000 of
// them take half a minute.
struct NameHash {
  [[nodiscard]] std::size_t operator()(std::string_view name) const noexcept;
};

// The iteration order differs from run to run, so sort what is shown or written. NameMap and
// NameSet hold views; the names must outlive them.
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

// A higher load than the default: the tables take half the memory, and look-ups stay as fast.
inline constexpr float kNameTableLoad = 0.8F;

template <typename Table>
[[nodiscard]] Table table_for(std::size_t names) {
  Table table;
  table.max_load_factor(kNameTableLoad);
  table.reserve(names);
  return table;
}

// Places in a list, by the name that stands there. It holds no names, so it takes 15 to 30 bytes
// for each, where a NameMap takes 64 to 128. The list must outlive it, and keep the names of the
// places added.
class NamePlaces {
 public:
  using NameAt = std::function<std::string_view(std::uint32_t)>;

  NamePlaces() = default;
  explicit NamePlaces(const NameAt& name_at, std::size_t names = 0);  // about so many are to come

  // The place added before that has the name of this one; this one, when there was none.
  std::uint32_t add(std::uint32_t place) { return *places_.insert(place).first; }

  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? std::nullopt : std::optional(*found);
  }
  [[nodiscard]] bool contains(std::string_view name) const { return places_.contains(name); }

 private:
  struct Hash {
    NameAt name_at;
    [[nodiscard]] std::size_t operator()(std::string_view name) const { return NameHash{}(name); }
    [[nodiscard]] std::size_t operator()(std::uint32_t place) const {
      return NameHash{}(name_at(place));
    }
  };
  struct Equal {
    using is_transparent = void;
    NameAt name_at;
    [[nodiscard]] bool operator()(std::uint32_t a, std::uint32_t b) const {
      return name_at(a) == name_at(b);
    }
    [[nodiscard]] bool operator()(std::string_view name, std::uint32_t place) const {
      return name == name_at(place);
    }
    [[nodiscard]] bool operator()(std::uint32_t place, std::string_view name) const {
      return name == name_at(place);
    }
  };

  tsl::robin_set<std::uint32_t, Hash, Equal, std::allocator<std::uint32_t>, true> places_;
};

}  // namespace onnx_external
