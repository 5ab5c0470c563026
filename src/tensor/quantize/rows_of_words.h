// Repacks 4-bit codes from words that hold codes of several rows, as in AWQ, to bytes that hold
// codes of one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onnx_external {

// Each column of `words` has one word of 32 bits with the codes of 8 rows; `shifts` has the
// position of the lowest bit of each code. The rows of `out` have half as many bytes as columns,
// and the first code of a byte is in its low bits. Requires: an even number of columns; `shifts`
// are the multiples of 4 below 32, in any order.
void pack_rows_of_words(std::span<const std::byte> words, std::span<const std::uint32_t, 8> shifts,
                        std::span<std::byte> out);

}  // namespace onnx_external
