#include "base/copy_range.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/progress_meter.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kMovedAtOnce = std::uint64_t{16} << 20;

// File system types as numbered by statfs(2). The headers that define them are not available
// everywhere.
constexpr std::array<std::uint32_t, 4> kSharingBlocks{
    0x58465342,  // XFS
    0x9123683e,  // Btrfs
    0xca451a4e,  // bcachefs
    0x7461636f,  // OCFS2
};
constexpr std::array<std::uint32_t, 3> kNetworked{
    0x6969,      // NFS
    0xfe534d42,  // SMB 2 and later
    0x00c36400,  // Ceph
};

// In some file systems and containers the calls below fail with all kinds of errors. So these
// functions stop at any error and leave the rest of the range to others; they fail only if the copy
// is cancelled.

Status ask_file_system(CopyRange& range) {
  while (range.length > 0) {
    auto from = static_cast<off64_t>(range.source_offset);
    auto to = static_cast<off64_t>(range.target_offset);
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(range.length, kMovedAtOnce));
    const ssize_t moved = uninterrupted([&] {
      return ::copy_file_range(range.source.fd(), &from, range.target.fd(), &to, wanted, 0);
    });
    if (moved <= 0) {
      break;
    }
    TRY(range.advance(static_cast<std::uint64_t>(moved)));
  }
  return {};
}

}  // namespace

Status CopyRange::advance(std::uint64_t count) {
  source_offset += count;
  target_offset += count;
  length -= count;
  return !step || step(count) ? Status() : cancelled();
}

bool RangeCopier::asks_file_system(const CopyRange& range) const {
  if (mover_ != Mover::kByFileSystem) {
    return mover_ == Mover::kFileSystem;
  }
  struct statfs info {};
  if (::fstatfs(range.target.fd(), &info) != 0) {
    return false;
  }
  const auto is_one_of = [&](const auto& kinds) {
    return std::find(kinds.begin(), kinds.end(), static_cast<std::uint32_t>(info.f_type)) !=
           kinds.end();
  };
  const bool is_aligned =
      range.source_offset % kPageBytes == 0 && range.target_offset % kPageBytes == 0;
  return is_one_of(kNetworked) || (is_aligned && is_one_of(kSharingBlocks));
}

bool RangeCopier::make_pipe() {
  if (pipe_.in) {
    return true;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return false;
  }
  pipe_.out = UniqueFd(ends[0]);
  pipe_.in = UniqueFd(ends[1]);
  // This may fail (each user has a quota); a smaller pipe is only slower.
  (void)::fcntl(pipe_.in.get(), F_SETPIPE_SZ, kPipeBytes);
  const int size = ::fcntl(pipe_.in.get(), F_GETPIPE_SZ);
  // One page less than the pipe holds, because a range that starts inside a page touches one page
  // more.
  pipe_.step = std::max(static_cast<std::size_t>(std::max(size, 0)), 2 * kPageBytes) - kPageBytes;
  return true;
}

// Moves `count` bytes from the pipe to the target. Returns false if the target does not accept
// them.
Result<bool> RangeCopier::drain_pipe(CopyRange& range, std::size_t count) {
  while (count > 0) {
    auto offset = static_cast<off64_t>(range.target_offset);
    const ssize_t put = uninterrupted([&] {
      return ::splice(pipe_.out.get(), nullptr, range.target.fd(), &offset, count, SPLICE_F_MOVE);
    });
    if (put <= 0) {
      return false;
    }
    count -= static_cast<std::size_t>(put);
    TRY(range.advance(static_cast<std::uint64_t>(put)));
  }
  return true;
}

Status RangeCopier::splice_range(CopyRange& range) {
  while (range.length > 0) {
    auto offset = static_cast<off64_t>(range.source_offset);
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(range.length, pipe_.step));
    const ssize_t got = uninterrupted([&] {
      return ::splice(range.source.fd(), &offset, pipe_.in.get(), nullptr, wanted, SPLICE_F_MOVE);
    });
    if (got <= 0) {
      break;
    }
    TRY_ASSIGN(const bool drained, drain_pipe(range, static_cast<std::size_t>(got)));
    if (!drained) {
      break;
    }
  }
  return {};
}

Status RangeCopier::copy_buffered(CopyRange& range, Crc32* crc) {
  while (range.length > 0) {
    const std::span<std::byte> room =
        buffer_.first(std::min<std::uint64_t>(range.length, kCopyBufferBytes));
    TRY_ASSIGN(const auto chunk, range.source.give(range.source_offset, room));
    if (crc != nullptr) {
      crc->update(chunk);
    }
    TRY(range.target.write(range.target_offset, chunk));
    TRY(range.advance(chunk.size()));
  }
  return {};
}

Status RangeCopier::copy(CopyRange range) {
  TRY(range.source.check_range(range.source_offset, range.length));
  if (range.source.runs() != nullptr) {
    return copy_buffered(range, nullptr);
  }
  if (asks_file_system(range)) {
    TRY(ask_file_system(range));
  }
  if (make_pipe()) {
    const Status status = splice_range(range);
    if (range.length > 0) {
      pipe_ = Pipe{};  // it may still hold bytes of this range
    }
    TRY(status);
  }
  return copy_buffered(range, nullptr);
}

Status RangeCopier::copy_with_crc(CopyRange range, Crc32& crc) {
  TRY(range.source.check_range(range.source_offset, range.length));
  return copy_buffered(range, &crc);
}

}  // namespace onnx_external
