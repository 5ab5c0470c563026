// Hash tables of names that files give.
#pragma once

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace onnx_external {

// SipHash-1-3 (https://www.aumasson.jp/siphash/) under a key that each process draws anew. The
// hash of the standard library has none: whoever makes a file can give it names that all collide,
// and 100,000 of them then cost half a minute.
struct NameHash {
  [[nodiscard]] std::size_t operator()(std::string_view name) const noexcept;
};

// The order in which they list their names differs from run to run: sort what is shown or written.
// NameMap and NameSet hold views, which must outlive them.
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

}  // namespace onnx_external
