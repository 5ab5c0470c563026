#include "base/holes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

namespace onnx_external {
namespace {

constexpr std::uint64_t kBlockBytes = 512;  // the unit of st_blocks

// Returns `offset` itself if the file system cannot tell.
std::uint64_t next_data(int fd, std::uint64_t offset, std::uint64_t end) {
  const off_t found = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (found < 0) {
    struct stat info {};
    const bool ends_in_hole = errno == ENXIO && ::fstat(fd, &info) == 0 &&
                              static_cast<std::uint64_t>(info.st_size) >= end;
    return ends_in_hole ? end : offset;
  }
  return std::clamp(static_cast<std::uint64_t>(found), offset, end);
}

std::uint64_t next_hole(int fd, std::uint64_t offset, std::uint64_t end) {
  const off_t found = ::lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
  return found < 0 ? end : std::clamp(static_cast<std::uint64_t>(found), offset, end);
}

}  // namespace

FileRun next_run(const SourceFile& file, std::uint64_t offset, std::uint64_t end) {
  if (file.runs() != nullptr) {
    return {end - offset, false};
  }
  const int fd = file.fd();
  std::uint64_t hole = next_hole(fd, offset, end);
  while (hole < end) {
    const std::uint64_t data = next_data(fd, hole, end);
    const bool counts = data - hole >= kMinHoleBytes;
    if (counts && hole == offset) {
      return {data - offset, true};
    }
    if (counts || data == hole) {  // no progress: the file is changing
      break;
    }
    hole = next_hole(fd, data, end);
  }
  return {std::max(hole, std::min(end, offset + 1)) - offset, false};
}

bool may_have_holes(const SourceFile& file) {
  struct stat info {};
  return file.runs() == nullptr && !file.is_slice() && ::fstat(file.fd(), &info) == 0 &&
         static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes <
             static_cast<std::uint64_t>(info.st_size);
}

Status check_is_written(const SourceFile& file) {
  constexpr int kMaxHolesPassed = 1000;
  const std::uint64_t size = file.size();
  if (file.runs() != nullptr || size == 0) {
    return {};
  }
  std::uint64_t hole = next_hole(file.fd(), 0, size);
  std::uint64_t data = size;
  for (int passed = 0; hole < size && passed < kMaxHolesPassed; ++passed) {
    data = next_data(file.fd(), hole, size);
    if (data == size || data - hole >= kMinHoleBytes) {
      break;
    }
    hole = data == hole ? size : next_hole(file.fd(), data, size);
  }
  if (hole >= size || may_have_holes(file)) {
    return {};
  }
  const bool is_end = next_data(file.fd(), hole, size) == size;
  if (!is_end && data - hole < kMinHoleBytes) {  // too many to look at
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              file.name() + ": space is reserved for " + (is_end ? "its last " : "") +
                  std::to_string(data - hole) + " of " + std::to_string(size) + " bytes" +
                  (is_end ? "" : ", from byte " + std::to_string(hole) + " on") +
                  ", but they were never written, as after an interrupted download; download or "
                  "copy it again");
}

std::uint64_t stored_bytes(const SourceFile& file) {
  const std::uint64_t size = file.size();
  std::uint64_t stored = may_have_holes(file) ? 0 : size;
  for (std::uint64_t offset = stored; offset < size;) {
    const FileRun run = next_run(file, offset, size);
    stored += run.is_hole ? 0 : run.bytes;
    offset += run.bytes;
  }
  return stored;
}

std::uint32_t crc32_of_zeros(std::uint64_t count) {
  constexpr std::array<std::byte, 1> kZero{};
  Crc32 one;
  one.update(kZero);
  std::uint32_t crc = 0;
  std::uint32_t power = one.value();  // of `length` zeros
  for (std::uint64_t length = 1; count > 0; count >>= 1U, length <<= 1U) {
    if ((count & 1U) != 0) {
      crc = crc32_concat(crc, power, length);
    }
    if (count > 1) {
      power = crc32_concat(power, power, length);
    }
  }
  return crc;
}

void SparseCrc32::update(std::span<const std::byte> bytes) {
  crc_.update(bytes);
  bytes_ += bytes.size();
}

void SparseCrc32::skip_zeros(std::uint64_t count) {
  before_ = crc32_concat(value(), crc32_of_zeros(count), count);
  crc_ = Crc32();
  bytes_ = 0;
}

}  // namespace onnx_external
