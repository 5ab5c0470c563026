// Reads ranges of files from start to end, through buffers: computes their CRC-32 and, if the
// expected bytes are known, compares them. Long holes are not read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/byte_comparer.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The bytes read at once: few enough to stay in a core's L2 cache while they are read, compared and
// checksummed.
inline constexpr std::uint64_t kReadBackStep = std::uint64_t{256} << 10;

// A part of a range of a file. All positions below are counted from the start of the range.
struct RangePart {
  const SourceFile& file;
  std::uint64_t offset = 0;  // of the range in the file
  std::uint64_t first = 0;
  std::uint64_t length = 0;
  bool wants_crc = true;
};

// The bytes that a range must contain.
struct ExpectedBytes {
  GiveBytes give;  // if empty, nothing is compared
  // If the bytes are a range of a file: that file, and where the range begins in it.
  const SourceFile* file = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t step = kReadBackStep;
};

struct ReadBack {
  std::optional<Error> unreadable;  // why the part could not be read; the rest is then meaningless
  std::optional<ByteDifference> difference;  // the first
  std::uint32_t crc32 = 0;                   // set with wants_crc
};

// Receives the number of bytes that were read or skipped since the last call.
using CountBytes = std::function<Status(std::uint64_t bytes)>;

// Errors of `expected` and `count`. `comparer` belongs to the calling thread.
[[nodiscard]] Result<ReadBack> read_back(const RangePart& part, const ExpectedBytes& expected,
                                         ByteComparer& comparer, const CountBytes& count);

// Returns the CRC-32 of a range. Errors: kCorrupt if the range is not inside the file; kIo.
[[nodiscard]] Result<std::uint32_t> range_crc32(const SourceFile& file, std::uint64_t offset,
                                                std::uint64_t length);

}  // namespace onnx_external
