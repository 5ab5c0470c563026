#include "base/size_text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace onnx_external {

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) {
    return count_text(bytes, "byte");
  }
  auto value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace onnx_external
