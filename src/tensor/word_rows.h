// Repacks 4-bit codes from words that hold codes of several rows, as in AWQ, to bytes that hold
// codes of one row.
#pragma once

#include <array>
#include <cstdint>

#include "tensor/copy_plane.h"

namespace onnx_external {

// The rows of a word: the position of the lowest bit of each row's code. The positions are the
// multiples of 4 below 32, in any order.
using WordRows = std::array<std::uint32_t, 8>;

// Like copy_plane(), for a matrix of 32-bit words. Each row of words becomes the 8 rows of codes in
// these words, one after another, which have `row_bytes` bytes each. The first code of a byte is in
// its low bits. `plane.to` is the place of the first code. Requires: plane.columns is even;
// plane.row_step is 4.
void pack_word_rows(const Plane& plane, const WordRows& rows, std::uint64_t row_bytes,
                    Stores stores);

}  // namespace onnx_external
