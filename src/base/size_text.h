// Sizes for humans, in the same form in all messages. File offsets and exact lengths stay plain
// numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace onnx_external {

// "512 bytes", "46.8 MB", "2.20 GB": powers of ten.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// "1 tensor", "2 tensors".
[[nodiscard]] std::string count_text(std::uint64_t count, std::string_view noun);

}  // namespace onnx_external
