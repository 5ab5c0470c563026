// Copies ranges of files at disk speed: inside the kernel, or through a small buffer if the CRC-32
// is needed. Bytes in memory are written directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A function that is called after every copied chunk (at most 1 MiB, or 16 MiB if the file system
// copies by itself). If it returns false, the copy stops with kCancelled.
using StepFn = std::function<bool(std::uint64_t bytes)>;

// The remaining part of a copy: `length` bytes of `source` from `source_offset` on, which must be
// written to `target` at `target_offset`.
struct CopyRange {
  const SourceFile& source;
  std::uint64_t source_offset;
  std::uint64_t length;
  const OutputFile& target;
  std::uint64_t target_offset;
  const StepFn& step;

  // Moves past `count` copied bytes, and calls `step`. Fails with kCancelled if `step` returns
  // false.
  [[nodiscard]] Status advance(std::uint64_t count);
};

// The size of the copy buffer, which fits into the L2 cache. 256 KiB was the fastest size between
// 64 KiB and 16 MiB (measured with 2 GB on 2 cores, ext4).
inline constexpr std::size_t kCopyBufferBytes = std::size_t{256} << 10;

// The mechanism by which RangeCopier::copy() moves bytes.
enum class Mover : std::uint8_t {
  kByFileSystem,  // kSplice or kFileSystem, depending on the target's file system
  kSplice,        // splice(), which copies inside the kernel from page cache to page cache
  kFileSystem,    // copy_file_range(), which shares blocks or lets a server copy
};

// Copies ranges. Each object has a pipe and a buffer, which it creates on first use and then
// reuses. Each thread therefore needs its own object.
class RangeCopier {
 public:
  explicit RangeCopier(Mover mover = Mover::kByFileSystem) : mover_(mover) {}
  RangeCopier(RangeCopier&&) noexcept = default;
  RangeCopier& operator=(RangeCopier&&) noexcept = default;

  // Copies the range by splice() through a pipe, which was the fastest method in measurements (0.45
  // times as long as cp, with 2 threads). Network file systems copy by themselves
  // (copy_file_range()), and so do file systems that can share blocks (XFS, Btrfs) if both offsets
  // are block-aligned. Because these calls fail with various errors in some file systems and
  // containers, any error makes this function copy the rest with read and write calls. Only errors
  // of these are returned: kCorrupt if the source is too short or shrinks; kIo; kCancelled.
  [[nodiscard]] Status copy(CopyRange range);

  // Copies through the buffer and adds the bytes to `crc`.
  [[nodiscard]] Status copy_with_crc(CopyRange range, Crc32& crc);

 private:
  struct Pipe {
    UniqueFd in;
    UniqueFd out;
    std::size_t step = 0;
  };
  [[nodiscard]] bool make_pipe();
  [[nodiscard]] bool asks_file_system(const CopyRange& range) const;
  [[nodiscard]] Status splice_range(CopyRange& range);
  [[nodiscard]] Result<bool> drain_pipe(CopyRange& range, std::size_t count);
  [[nodiscard]] Status copy_buffered(CopyRange& range, Crc32* crc);

  Mover mover_;
  Pipe pipe_;
  IoBuffer buffer_;
};

}  // namespace onnx_external
