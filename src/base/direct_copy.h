// Copies ranges of files past the page cache, for files larger than memory: what other programs
// keep there stays.
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

// What O_DIRECT must be aligned to: memory, offsets and lengths. Disks ask for 512 or 4096.
inline constexpr std::size_t kDirectBlock = 4096;

// Read and written at once; larger pieces were no faster (virtio disk, 64 KiB to 16 MiB).
inline constexpr std::size_t kDirectPieceBytes = std::size_t{1} << 20;

// Shorter ranges go through the cache: two pages of them would anyway.
inline constexpr std::uint64_t kMinDirectBytes = std::uint64_t{256} << 10;

// The buffers of one copying thread. One thread at a time; use one object a thread.
class DirectCopier {
 public:
  // As RangeCopier::copy_with_digests(). Goes through the cache where the file system has no other
  // way, for short ranges, and for the parts of blocks at both ends. Several threads may write
  // ranges of one target that share no block.
  [[nodiscard]] Status copy(const SourceFile& source, std::uint64_t source_offset,
                            std::uint64_t length, const OutputFile& target,
                            std::uint64_t target_offset, const StepFn& step, Crc32& crc, Sha* sha);

 private:
  IoBuffer blocks_;  // as they are read
  IoBuffer moved_;   // where the range's first byte starts a block
};

}  // namespace onnx_external
