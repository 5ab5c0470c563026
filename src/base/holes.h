// Holes of files: ranges that a sparse file does not store, and that read as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/digest.h"

namespace onnx_external {

// Shorter holes are not worth a call of their own: they are read as data.
inline constexpr std::uint64_t kMinHoleBytes = std::uint64_t{256} << 10;

struct FileRun {
  std::uint64_t bytes = 0;
  bool is_hole = false;
};

// The run that begins at `offset` of the open file and ends at `end` at the latest: a hole of at
// least kMinHoleBytes, or data up to the next one. Data where the file system does not tell, and
// past the end of the file. Requires: offset < end. One system call where the range has no hole.
[[nodiscard]] FileRun next_run(int fd, std::uint64_t offset, std::uint64_t end);

// False when the file has all its blocks; costs less than looking for holes.
[[nodiscard]] bool may_have_holes(int fd);

// How many of the first `size` bytes of the open file are no holes.
[[nodiscard]] std::uint64_t stored_bytes(int fd, std::uint64_t size);

// The CRC-32 of so many zero bytes, without reading them.
[[nodiscard]] std::uint32_t crc32_of_zeros(std::uint64_t count);

// A CRC-32 that passes over zeros. A plain value.
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
