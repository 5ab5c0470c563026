// Formats and parses sizes for people, in the same form everywhere. File offsets and exact lengths
// are printed as plain numbers instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// "512 bytes", "46.8 MB", "2.20 GB": powers of ten.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// A size as people write it: "500MB", "500M", "4GiB", "4096".
struct WrittenSize {
  std::string_view digits;   // one or more, a view of the text that was split
  std::uint64_t factor = 1;  // bytes in the unit: k, K, M, G, kB, KB, MB, GB, KiB, MiB, GiB or none
};
// Splits a size such as "2GB" into its number and unit. Returns nullopt if the text does not
// begin with a digit or has an unknown unit.
[[nodiscard]] std::optional<WrittenSize> split_size(std::string_view text);

// "1 tensor", "2 tensors".
[[nodiscard]] std::string count_text(std::uint64_t count, std::string_view noun);

}  // namespace onnx_external
