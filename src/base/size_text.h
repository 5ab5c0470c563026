// Formats and parses sizes in human-readable form. File offsets and exact lengths are printed as
// plain numbers instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// Returns a size as text, in units that are powers of ten: "512 bytes", "46.8 MB", "2.20 GB".
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// A size as users write it, such as "500MB", "500M", "4GiB" or "4096".
struct WrittenSize {
  std::string_view digits;   // one or more digits, a view of the original text
  std::uint64_t factor = 1;  // bytes in the unit: k, K, M, G, kB, KB, MB, GB, KiB, MiB, GiB or none
};
// Splits a size such as "2GB" into its number and unit. Returns nullopt if the text does not
// begin with a digit or has an unknown unit.
[[nodiscard]] std::optional<WrittenSize> split_size(std::string_view text);

// Returns a count with its noun: "1 tensor", "2 tensors".
[[nodiscard]] std::string count_text(std::uint64_t count, std::string_view noun);

}  // namespace onnx_external
