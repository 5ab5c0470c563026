// Files as sources: opened once, checked on the descriptor, read at explicit offsets.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external {

// Owns one file descriptor; closes it on destruction.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

// "open 'model.pt': Permission denied" with the code that fits errno.
[[nodiscard]] Error errno_error(int error_number, const std::string& what);

// Calls again what a signal has interrupted (-1 with EINTR); gives the last answer, and errno.
template <typename Call>
[[nodiscard]] int uninterrupted(const Call& call) {
  int result = 0;
  do {
    result = call();
  } while (result != 0 && errno == EINTR);
  return result;
}

// Waits until the file is on the disk. An error is final: the pages count as clean afterwards.
[[nodiscard]] Status sync_file(int fd, const std::string& name);

// Asks that the bytes leave the page cache; length 0: up to the end. Advice only: dirty pages stay,
// and a failure changes nothing but speed.
void drop_pages(int fd, std::uint64_t offset = 0, std::uint64_t length = 0);

// Reads exactly out.size() bytes at `offset` of `fd`, through EINTR and short reads.
// kCorrupt when the file ends before; `name` goes into the message.
[[nodiscard]] Status read_exact(int fd, std::uint64_t offset, std::span<std::byte> out,
                                const std::string& name);

// Writes all bytes at `offset` of `fd`, through EINTR and short writes.
[[nodiscard]] Status write_all(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                               const std::string& name);

// A run of bytes of a file, or of a text in one.
struct BytesPlace {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A regular file held open for reading. Immutable; all members may be called from any thread.
class SourceFile {
 public:
  // Follows symbolic links; refuses anything that is not a regular file (never blocks on a FIFO).
  // kNotFound, kIo, kInvalidArgument (a folder, a FIFO, a device ...).
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> open(
      const std::filesystem::path& path);

  // Takes an open descriptor; `path` is for messages.
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> adopt(UniqueFd fd,
                                                                       std::filesystem::path path);

  // The bytes [offset, offset + size) of `whole` as a file of their own, for a format that stands
  // inside another file: size() and read() are the slice's, everything else is the whole file's.
  // kCorrupt when the range is not inside.
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> slice(
      const std::shared_ptr<const SourceFile>& whole, std::uint64_t offset, std::uint64_t size);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string name() const;                     // for messages
  [[nodiscard]] std::uint64_t size() const { return size_; }  // when it was opened
  [[nodiscard]] int fd() const { return whole_ ? whole_->fd() : fd_.get(); }
  [[nodiscard]] std::uint64_t link_count() const { return links_; }

  // kCorrupt when the range is not inside size() or the file shrank since.
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> out) const;

  // kCorrupt when size or modification time is no longer what it was at open.
  [[nodiscard]] Status check_unchanged() const;

  // Which file this is in which state, as text: inode, size, times of the last change of its bytes
  // and of its entry. Without the device, whose number may change with every start of the system.
  [[nodiscard]] Result<std::string> stamp() const;

  // True when both are the same file on disk.
  [[nodiscard]] bool same_file(const SourceFile& other) const {
    return device_ == other.device_ && inode_ == other.inode_;
  }

 private:
  SourceFile() = default;
  UniqueFd fd_;
  std::shared_ptr<const SourceFile> whole_;  // of a slice
  std::uint64_t slice_offset_ = 0;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  std::uint64_t links_ = 0;
  std::int64_t modified_ns_ = 0;
};

// The whole file as a string. kUnsupported when it is larger than `max_bytes`.
[[nodiscard]] Result<std::string> read_file(const SourceFile& file, std::uint64_t max_bytes);

}  // namespace onnx_external
