// Formats and parses sizes for people, in the same form everywhere. File offsets and exact lengths
// stay plain numbers.
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
  std::string_view digits;   // one or more, of the text that was split
  std::uint64_t factor = 1;  // of the unit: k, K, M, G, kB, KB, MB, GB, KiB, MiB, GiB or none
};
// Nullopt if the text has no digits in front or an unknown unit behind.
[[nodiscard]] std::optional<WrittenSize> split_size(std::string_view text);

// "1 tensor", "2 tensors".
[[nodiscard]] std::string count_text(std::uint64_t count, std::string_view noun);

}  // namespace onnx_external
