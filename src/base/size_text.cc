#include "base/size_text.h"

#include <fmt/format.h>

#include <algorithm>
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

std::optional<WrittenSize> split_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::uint64_t bytes;
  };
  static constexpr std::array kUnits{Unit{"", 1},
                                     Unit{"k", 1'000},
                                     Unit{"K", 1'000},
                                     Unit{"M", 1'000'000},
                                     Unit{"G", 1'000'000'000},
                                     Unit{"kB", 1'000},
                                     Unit{"KB", 1'000},
                                     Unit{"MB", 1'000'000},
                                     Unit{"GB", 1'000'000'000},
                                     Unit{"KiB", std::uint64_t{1} << 10},
                                     Unit{"MiB", std::uint64_t{1} << 20},
                                     Unit{"GiB", std::uint64_t{1} << 30}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto found = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& known) {
    return known.name == text.substr(digits);
  });
  if (digits == 0 || found == kUnits.end()) {
    return std::nullopt;
  }
  return WrittenSize{text.substr(0, digits), found->bytes};
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace onnx_external
