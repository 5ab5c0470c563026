// Copies ranges of files past the page cache, for files larger than memory, so that other programs
// keep their cached pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/copy_range.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// O_DIRECT needs memory, offsets and lengths aligned to this. Disks require 512 or 4096 bytes.
inline constexpr std::size_t kDirectBlock = 4096;

// Bytes per read or write. Larger chunks were no faster (virtio disk, 64 KiB to 16 MiB).
inline constexpr std::size_t kDirectChunkBytes = std::size_t{1} << 20;

// Shorter ranges go through the cache, as their partial blocks at both ends must anyway.
inline constexpr std::uint64_t kMinDirectBytes = std::uint64_t{256} << 10;

// The buffers of one copying thread. Use one object per thread.
class DirectCopier {
 public:
  // Works like RangeCopier::copy_with_digests(). Short ranges, partial blocks at both ends, and
  // file systems without O_DIRECT go through the cache. Several threads may write ranges of one
  // target if these share no block.
  [[nodiscard]] Status copy(const CopyRange& range, Crc32& crc, Sha* sha);

 private:
  IoBuffer blocks_;  // as read from the source
  IoBuffer moved_;   // shifted so that they are aligned in the target
};

}  // namespace onnx_external
