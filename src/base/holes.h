// Finds the holes of sparse files, which are ranges that are not stored and are read as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/digest.h"
#include "base/file.h"

namespace onnx_external {

// Holes that are shorter than this are read as data, because skipping them would not save the time
// of an extra system call.
inline constexpr std::uint64_t kMinHoleBytes = std::uint64_t{256} << 10;

struct FileRun {
  std::uint64_t bytes = 0;
  bool is_hole = false;
};

// Returns the run that begins at `offset` and ends at `end` at the latest: a hole of at least
// kMinHoleBytes, or data up to the next hole. Everything past the end of the file counts as data,
// and so does the whole file if the file system does not report holes. A range without a hole costs
// one system call. Requires: offset < end.
[[nodiscard]] FileRun next_run(const SourceFile& file, std::uint64_t offset, std::uint64_t end);

// Returns false if all blocks of the file are stored, and for a slice of a file. This is cheaper
// than searching for holes.
[[nodiscard]] bool may_have_holes(const SourceFile& file);

// Fails with kInvalidArgument if disk space was reserved at the end of the file, or for at least
// kMinHoleBytes anywhere, but nothing was written there, as after a download that broke off. Holes
// of ordinary sparse files, which take no disk space, are not an error. Costs one system call, and
// two more for each hole.
[[nodiscard]] Status check_is_written(const SourceFile& file);

// Returns the number of bytes that are not in holes.
[[nodiscard]] std::uint64_t stored_bytes(const SourceFile& file);

// Returns the CRC-32 of `count` zero bytes without reading any.
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
