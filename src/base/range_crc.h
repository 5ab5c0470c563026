// Computes the CRC-32 of a range of a file.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reads the range through a buffer of 256 KiB. Errors: kCorrupt if the range is not inside the
// file; kIo.
[[nodiscard]] Result<std::uint32_t> range_crc32(const SourceFile& file, std::uint64_t offset,
                                                std::uint64_t length);

}  // namespace onnx_external
