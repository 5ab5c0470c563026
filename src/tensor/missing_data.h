// Finds zeros that a broken download left instead of data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The place of the bytes of a tensor in a file. The caller keeps name and shape alive.
struct StoredRange {
  std::string_view tensor;
  std::span<const std::int64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// kInvalidArgument if the zeros at the end of the data, or a hole in it, begin where zeros of
// weights would not: inside a row, or inside a tensor that is followed by whole matrices of zeros.
// Otherwise returns a note if the last tensors, including matrices, are zeros, which also occurs in
// new models; empty if they are not. Reads the end of the data up to the first byte that is not
// zero: mostly one block.
[[nodiscard]] Result<std::string> check_is_not_missing(const SourceFile& file,
                                                       std::vector<StoredRange> ranges);

}  // namespace onnx_external
