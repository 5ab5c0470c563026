// Takes codes of 4 bits out of words that hold those of several rows, as AWQ packs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onnx_external {

// Packs codes along their rows. Each column has a word of 32 bits with the codes of 8 rows:
// `shifts` has the lowest bit of each. The rows of `out` are `columns` / 2 bytes long, and the
// first code of a byte is in its low bits. Requires: an even number of columns; shifts are the
// multiples of 4 below 32, in any order.
void pack_rows_of_words(std::span<const std::byte> words, std::span<const std::uint32_t, 8> shifts,
                        std::span<std::byte> out);

}  // namespace onnx_external
