#include "base/direct_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/try.h"

namespace onnx_external {
namespace {

// Opens the same file again: O_DIRECT is a property of the open file, and others use the given one.
// Returns no descriptor if the file system does not support O_DIRECT.
UniqueFd reopen_direct(int fd, int flags) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  return UniqueFd(::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC));
}

// Reads whole blocks from `offset` on, at least `least` bytes.
Status read_blocks(int fd, std::uint64_t offset, std::span<std::byte> out, std::size_t least,
                   const std::string& name) {
  for (std::size_t done = 0; done < least;) {
    const ssize_t got = uninterrupted([&] {
      return ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (got < 0) {
      return fail(errno_error(errno, fmt::format("{}: byte {}: cannot read", name, offset + done)));
    }
    done += static_cast<std::size_t>(got);
    // Only the end of the file can be a partial block.
    if (done < least && (got == 0 || done % kDirectBlock != 0)) {
      return fail(cut_short(name, offset + done, least - done));
    }
  }
  return {};
}

// One range that is being copied.
class DirectRange {
 public:
  DirectRange(const CopyRange& range, Crc32& crc, Sha* sha) : range_(range), crc_(crc), sha_(sha) {}

  Status copy(IoBuffer& blocks, IoBuffer& moved) {
    if (range_.length < kMinDirectBytes) {
      return copy_cached(range_.length, blocks);
    }
    const bool in_memory = range_.source.runs() != nullptr;
    const UniqueFd in = in_memory ? UniqueFd() : reopen_direct(range_.source.fd(), O_RDONLY);
    const UniqueFd out = reopen_direct(range_.target.fd(), O_WRONLY);
    if ((!in && !in_memory) || !out) {
      return copy_cached(range_.length, blocks);
    }
    const std::uint64_t head = (block_ - range_.target_offset % block_) % block_;
    TRY(copy_cached(head, blocks));
    while (range_.length >= block_) {
      const std::uint64_t whole = range_.length - range_.length % block_;
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(whole, kDirectChunkBytes));
      const Status status = in_memory ? write_chunk(out.get(), count, moved)
                                      : copy_chunk(in.get(), out.get(), count, blocks, moved);
      if (!status && status.error().code == ErrorCode::kCancelled) {
        return status;
      }
      if (!status) {
        break;  // the cache may be able to, or tells why not
      }
    }
    return copy_cached(range_.length, blocks);
  }

 private:
  Status copy_cached(std::uint64_t count, IoBuffer& buffer) {
    while (count > 0) {
      const auto room = buffer.first(std::min<std::uint64_t>(count, kDirectChunkBytes));
      TRY_ASSIGN(const auto chunk, range_.source.give(range_.source_offset, room));
      TRY(range_.target.write(range_.target_offset, chunk));
      TRY(advance(chunk));
      count -= chunk.size();
    }
    return {};
  }

  // Requires: the target offset and `count` are whole blocks.
  Status copy_chunk(int in, int out, std::size_t count, IoBuffer& blocks, IoBuffer& moved) {
    const auto skew = static_cast<std::size_t>(range_.source_offset % block_);
    const auto window = blocks.first(kDirectChunkBytes + block_).first(round_up(skew + count));
    TRY(read_blocks(in, range_.source_offset - skew, window, skew + count, range_.source.name()));
    std::span<std::byte> chunk = window.subspan(skew, count);
    if (skew != 0) {
      const auto aligned = moved.first(kDirectChunkBytes).first(count);
      std::memcpy(aligned.data(), chunk.data(), count);
      chunk = aligned;
    }
    TRY(write_all(out, range_.target_offset, chunk, range_.target.name()));
    return advance(chunk);
  }

  // From memory, which may begin anywhere.
  Status write_chunk(int out, std::size_t count, IoBuffer& moved) {
    const auto aligned = moved.first(kDirectChunkBytes).first(count);
    TRY(range_.source.read(range_.source_offset, aligned));
    TRY(write_all(out, range_.target_offset, aligned, range_.target.name()));
    return advance(aligned);
  }

  std::size_t round_up(std::size_t bytes) const { return (bytes + block_ - 1) / block_ * block_; }

  Status advance(std::span<const std::byte> chunk) {
    crc_.update(chunk);
    if (sha_ != nullptr) {
      sha_->update(chunk);
    }
    return range_.advance(chunk.size());
  }

  CopyRange range_;
  Crc32& crc_;
  Sha* sha_;
  // At least a page: a page written both directly and through the cache could lose bytes.
  const std::size_t block_ =
      std::max(kDirectBlock, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
};

}  // namespace

Status DirectCopier::copy(const CopyRange& range, Crc32& crc, Sha* sha) {
  TRY(range.source.check_range(range.source_offset, range.length));
  return DirectRange(range, crc, sha).copy(blocks_, moved_);
}

}  // namespace onnx_external
