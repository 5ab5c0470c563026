// Detects files in which missing data was replaced by zeros, as after an interrupted download.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The range of a file that holds the bytes of a tensor. The caller must keep the name and the shape
// alive.
struct StoredRange {
  std::string_view tensor;
  std::span<const std::int64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Fails with kInvalidArgument if the zeros at the end of the data, or a hole in it, begin at an
// implausible position. Such positions are inside a row, or inside a tensor that is followed by
// whole matrices of zeros. Otherwise, if the last tensors, including matrices, are all zeros, which
// also occurs in new models, returns a note that says so. In all other cases returns "". Reads
// backwards from the end of the data to the last byte that is not zero, usually only one block.
[[nodiscard]] Result<std::string> check_is_not_missing(const SourceFile& file,
                                                       std::vector<StoredRange> ranges);

}  // namespace onnx_external
