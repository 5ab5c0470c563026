// Holes of sparse files: ranges that are not stored and read as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/digest.h"
#include "base/file.h"

namespace onnx_external {

// Shorter holes do not repay an extra system call; they are read as data.
inline constexpr std::uint64_t kMinHoleBytes = std::uint64_t{256} << 10;

struct FileRun {
  std::uint64_t bytes = 0;
  bool is_hole = false;
};

// The run that begins at `offset` and ends at `end` at the latest: a hole of at least
// kMinHoleBytes, or data up to the next one. Everything counts as data past the end of the file,
// and if the file system does not report holes. A range without a hole costs one system call.
// Requires: offset < end.
[[nodiscard]] FileRun next_run(const SourceFile& file, std::uint64_t offset, std::uint64_t end);

// False if all blocks of the file are stored; cheaper than searching for holes.
[[nodiscard]] bool may_have_holes(const SourceFile& file);

// kInvalidArgument if space was reserved for the end of the file, or for kMinHoleBytes anywhere,
// and nothing was written there: what a broken download leaves behind. Sparse files, whose holes
// take no space, are complete. Costs a system call, and two for each hole.
[[nodiscard]] Status check_is_written(const SourceFile& file);

// Returns the number of bytes that are not in holes.
[[nodiscard]] std::uint64_t stored_bytes(const SourceFile& file);

// The CRC-32 of `count` zero bytes, computed without reading them.
[[nodiscard]] std::uint32_t crc32_of_zeros(std::uint64_t count);

// A CRC-32 that can skip zeros. A plain value.
class SparseCrc32 {
 public:
  void update(std::span<const std::byte> bytes);
  void skip_zeros(std::uint64_t count);
  [[nodiscard]] std::uint32_t value() const { return crc32_concat(before_, crc_.value(), bytes_); }

 private:
  std::uint32_t before_ = 0;
  Crc32 crc_;  // of the last `bytes_`
  std::uint64_t bytes_ = 0;
};

}  // namespace onnx_external
