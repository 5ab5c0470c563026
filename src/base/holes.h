// Finds the holes of sparse files, which are ranges that have no disk blocks and read as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/digest.h"
#include "base/file.h"

namespace onnx_external {

// The minimum size of a hole. Shorter holes are read as data, because skipping one saves less time
// than the additional system call takes.
inline constexpr std::uint64_t kMinHoleBytes = std::uint64_t{256} << 10;

struct FileRun {
  std::uint64_t bytes = 0;
  bool is_hole = false;
};

// Returns the run that begins at `offset` and ends at `end` at the latest: a hole of at least
// kMinHoleBytes, or data up to the next hole. Bytes past the end of the file count as data. If the
// file system does not report holes, the whole file counts as data. For a range without holes, one
// system call is made. Requires: offset < end.
[[nodiscard]] FileRun next_run(const SourceFile& file, std::uint64_t offset, std::uint64_t end);

// Returns false if all blocks of the file are stored, and for a slice of a file. This is cheaper
// than searching for holes.
[[nodiscard]] bool may_have_holes(const SourceFile& file);

// Fails with kInvalidArgument if disk space was reserved for a range of the file, but nothing was
// written there, as after an interrupted download. The range must be at the end of the file or have
// at least kMinHoleBytes. Holes of ordinary sparse files, for which no disk space is reserved, are
// not an error. Makes one system call, and two more for each hole.
[[nodiscard]] Status check_is_written(const SourceFile& file);

// Returns the number of bytes of the file that are not in holes.
[[nodiscard]] std::uint64_t stored_bytes(const SourceFile& file);

// Returns the CRC-32 of `count` zero bytes, computed without processing that many bytes.
[[nodiscard]] std::uint32_t crc32_of_zeros(std::uint64_t count);

// Computes a CRC-32 and can skip runs of zeros. A plain value.
class SparseCrc32 {
 public:
  void update(std::span<const std::byte> bytes);
  void skip_zeros(std::uint64_t count);
  [[nodiscard]] std::uint32_t value() const { return crc32_concat(before_, crc_.value(), bytes_); }

 private:
  std::uint32_t before_ = 0;
  Crc32 crc_;  // CRC-32 of the last `bytes_` bytes
  std::uint64_t bytes_ = 0;
};

}  // namespace onnx_external
