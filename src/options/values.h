// Parses the values of options. For an invalid value, each function returns a kInvalidArgument
// error that describes the value; the caller adds the name of the option.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::uint64_t kMaxSizeOption = std::uint64_t{1} << 62;  // bytes

// Parses a decimal number from `least` to `most`.
[[nodiscard]] Result<std::uint64_t> number_in(const std::string& text, std::uint64_t least,
                                              std::uint64_t most);
// Parses a size such as "500MB", "500M", "4GiB" or a plain number of bytes. The number must be at
// least `least`, and the size at most `most` bytes.
[[nodiscard]] Result<std::uint64_t> size_in(const std::string& text, std::uint64_t least,
                                            std::uint64_t most);
// Parses a size that is a power of two within the limits of an alignment.
[[nodiscard]] Result<std::uint64_t> alignment_of(const std::string& text);

[[nodiscard]] Status not_one_of(const std::string& text, const std::string_view* choices,
                                std::size_t count);

// Sets `out` to the value whose name is `text`.
template <typename Value, std::size_t N>
[[nodiscard]] Status choose(const std::string& text, const std::array<std::string_view, N>& names,
                            const std::array<Value, N>& values, Value& out) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    return not_one_of(text, names.data(), N);
  }
  out = values[static_cast<std::size_t>(found - names.begin())];
  return {};
}

// Sets `out` to the value, or returns its error.
template <typename Out, typename Value>
[[nodiscard]] Status set_to(Out& out, Result<Value> value) {
  if (!value) {
    return fail(std::move(value).error());
  }
  out = static_cast<Out>(*std::move(value));
  return {};
}

}  // namespace onnx_external
