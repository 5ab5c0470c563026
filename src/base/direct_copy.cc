#include "base/direct_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/checked_math.h"
#include "base/progress_meter.h"

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
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return fail(errno_error(errno, fmt::format("{}: byte {}: cannot read", name, offset + done)));
    }
    done += static_cast<std::size_t>(got);
    // Only the end of the file can be a partial block.
    if (done < least && (got == 0 || done % kDirectBlock != 0)) {
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("{}: byte {}: the file ends here, {} more bytes were expected; was it "
                      "cut or changed?",
                      name, offset + done, least - done));
    }
  }
  return {};
}

// One range that is being copied.
class DirectRange {
 public:
  DirectRange(const SourceFile& source, std::uint64_t source_offset, std::uint64_t length,
              const OutputFile& target, std::uint64_t target_offset, const StepFn& step, Crc32& crc,
              Sha* sha)
      : source_(source),
        source_offset_(source_offset),
        length_(length),
        target_(target),
        target_offset_(target_offset),
        step_(step),
        crc_(crc),
        sha_(sha) {}

  Status copy(IoBuffer& blocks, IoBuffer& moved) {
    if (length_ < kMinDirectBytes) {
      return copy_cached(length_, blocks);
    }
    const UniqueFd in = reopen_direct(source_.fd(), O_RDONLY);
    const UniqueFd out = reopen_direct(target_.fd(), O_WRONLY);
    if (!in || !out) {
      return copy_cached(length_, blocks);
    }
    const std::uint64_t head = (block_ - target_offset_ % block_) % block_;
    Status status = copy_cached(head, blocks);
    while (status && length_ >= block_) {
      const std::uint64_t whole = length_ - length_ % block_;
      status =
          copy_piece(in.get(), out.get(),
                     static_cast<std::size_t>(std::min<std::uint64_t>(whole, kDirectPieceBytes)),
                     blocks, moved);
    }
    return status ? copy_cached(length_, blocks) : status;
  }

 private:
  Status copy_cached(std::uint64_t count, IoBuffer& buffer) {
    while (count > 0) {
      const auto piece = buffer.first(std::min<std::uint64_t>(count, kDirectPieceBytes));
      Status status = source_.read(source_offset_, piece);
      if (status) {
        status = target_.write(target_offset_, piece);
      }
      if (status) {
        status = advance(piece);
      }
      if (!status) {
        return status;
      }
      count -= piece.size();
    }
    return {};
  }

  // Requires: the target offset and `count` are whole blocks.
  Status copy_piece(int in, int out, std::size_t count, IoBuffer& blocks, IoBuffer& moved) {
    const auto skew = static_cast<std::size_t>(source_offset_ % block_);
    const auto window = blocks.first(kDirectPieceBytes + block_).first(round_up(skew + count));
    Status status = read_blocks(in, source_offset_ - skew, window, skew + count, source_.name());
    if (!status) {
      return status;
    }
    std::span<std::byte> piece = window.subspan(skew, count);
    if (skew != 0) {
      const auto aligned = moved.first(kDirectPieceBytes).first(count);
      std::memcpy(aligned.data(), piece.data(), count);
      piece = aligned;
    }
    status = write_all(out, target_offset_, piece, target_.name());
    return status ? advance(piece) : status;
  }

  std::size_t round_up(std::size_t bytes) const { return (bytes + block_ - 1) / block_ * block_; }

  Status advance(std::span<const std::byte> piece) {
    crc_.update(piece);
    if (sha_ != nullptr) {
      sha_->update(piece);
    }
    source_offset_ += piece.size();
    target_offset_ += piece.size();
    length_ -= piece.size();
    return !step_ || step_(piece.size()) ? Status() : cancelled();
  }

  const SourceFile& source_;
  std::uint64_t source_offset_;
  std::uint64_t length_;
  const OutputFile& target_;
  std::uint64_t target_offset_;
  const StepFn& step_;
  Crc32& crc_;
  Sha* sha_;
  // At least a page: a page written both directly and through the cache could lose bytes.
  const std::size_t block_ =
      std::max(kDirectBlock, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
};

}  // namespace

Status DirectCopier::copy(const SourceFile& source, std::uint64_t source_offset,
                          std::uint64_t length, const OutputFile& target,
                          std::uint64_t target_offset, const StepFn& step, Crc32& crc, Sha* sha) {
  if (!range_fits(source_offset, length, source.size())) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: byte {}: {} bytes wanted, but the file has {}", source.name(),
                            source_offset, length, source.size()));
  }
  return DirectRange(source, source_offset, length, target, target_offset, step, crc, sha)
      .copy(blocks_, moved_);
}

}  // namespace onnx_external
