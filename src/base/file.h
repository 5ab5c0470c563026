// Reads source files. A file is opened once, checked through its descriptor, and read at explicit
// offsets. Bytes that are not in a file (base/memory_runs.h) are read through the same interface.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/memory_runs.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Owns one file descriptor; closes it on destruction.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Creates an error such as "open 'model.pt': Permission denied", with the ErrorCode for this errno.
[[nodiscard]] Error errno_error(int error_number, const std::string& what);

// Repeats a call as long as a signal interrupts it (-1 with EINTR). Returns the result of the last
// call, with errno as that call set it.
template <typename Call>
[[nodiscard]] auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

// Creates the error for a failed fsync, which suggests the option that disables fsync.
[[nodiscard]] Error sync_error(int error_number, const std::string& what);

// Creates the error for a file that now ends at `offset`, but had `missing` more bytes when it was
// opened.
[[nodiscard]] Error cut_short(const std::string& name, std::uint64_t offset, std::uint64_t missing);

// Waits until the file's bytes are on the disk. Do not retry after an error, because the kernel
// marks failed pages as clean, so a second call could succeed although the bytes are not on the
// disk.
[[nodiscard]] Status sync_file(int fd, const std::string& name);

// Asks the kernel to drop a range of the file from the page cache; length 0 means up to the end.
// This is only a hint: dirty pages are not dropped, and a failure is ignored.
void drop_pages(int fd, std::uint64_t offset = 0, std::uint64_t length = 0);

// Reads exactly out.size() bytes at `offset` of `fd`, and continues after EINTR and short reads.
// Fails with kCorrupt if the file ends earlier. `name` is used in messages.
[[nodiscard]] Status read_exact(int fd, std::uint64_t offset, std::span<std::byte> out,
                                const std::string& name);

// Writes all bytes at `offset` of `fd`, and continues after EINTR and short writes.
[[nodiscard]] Status write_all(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                               const std::string& name);

// A range of bytes in a file, or in a text within a file.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A regular file that is open for reading, or bytes that are not in a file. Immutable; all members
// may be called from any thread.
class SourceFile {
 public:
  // Opens a regular file, following symbolic links. Does not block if `path` is a FIFO. Errors:
  // kNotFound, kIo, kInvalidArgument (a folder, a FIFO, a device ...).
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> open(
      const std::filesystem::path& path);

  // Takes ownership of an open descriptor; `path` is used in messages.
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> adopt(UniqueFd fd,
                                                                       std::filesystem::path path);

  // Returns the bytes [offset, offset + size) of `whole` as a SourceFile, for a file that is
  // embedded in another file. size() and read() of the result refer to the slice, and all other
  // members to the whole file. Fails with kCorrupt if the range is not inside `whole`.
  [[nodiscard]] static Result<std::shared_ptr<const SourceFile>> slice(
      const std::shared_ptr<const SourceFile>& whole, std::uint64_t offset, std::uint64_t size);

  // Returns a source of bytes that are not in a file; it has no path and no descriptor.
  [[nodiscard]] static std::shared_ptr<const SourceFile> of_runs(
      std::shared_ptr<const MemoryRuns> runs);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string name() const;                     // for messages
  [[nodiscard]] std::uint64_t size() const { return size_; }  // size when the file was opened
  // Returns the descriptor, or -1 if the bytes are not in a file.
  [[nodiscard]] int fd() const { return whole_ ? whole_->fd() : fd_.get(); }
  // Returns the runs that hold the bytes, or null if the bytes are in a file.
  [[nodiscard]] const MemoryRuns* runs() const { return whole_ ? whole_->runs() : runs_.get(); }
  [[nodiscard]] std::uint64_t link_count() const { return links_; }
  [[nodiscard]] bool is_slice() const { return whole_ != nullptr; }

  // Fails with kCorrupt if the range exceeds size().
  [[nodiscard]] Status check_range(std::uint64_t offset, std::uint64_t length) const;

  // Reads out.size() bytes. Fails with kCorrupt if the range is not inside size() or the file has
  // shrunk. For bytes that are not in a file, also returns errors of MemoryRuns::bytes().
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> out) const;

  // Returns room.size() bytes from `offset` on. Bytes in memory are returned without copying them,
  // and bytes in a file are read into `room`.
  [[nodiscard]] Result<std::span<const std::byte>> give(std::uint64_t offset,
                                                        std::span<std::byte> room) const;

  // Fails with kCorrupt if the size or modification time has changed since the file was opened.
  // Always succeeds for bytes that are not in a file.
  [[nodiscard]] Status check_unchanged() const;

  // Returns a string that identifies the file and its state: inode, size, modification time and
  // change time. The device number is left out, because it may change when the system restarts. For
  // bytes that are not in a file, each call returns a different random string.
  [[nodiscard]] Result<std::string> stamp() const;

  // Returns whether both are the same file on disk.
  [[nodiscard]] bool same_file(const SourceFile& other) const {
    const bool are_files = runs() == nullptr && other.runs() == nullptr;
    return are_files && device_ == other.device_ && inode_ == other.inode_;
  }

 private:
  SourceFile() = default;
  UniqueFd fd_;
  std::shared_ptr<const MemoryRuns> runs_;   // used instead of the descriptor
  std::shared_ptr<const SourceFile> whole_;  // set for a slice
  std::uint64_t slice_offset_ = 0;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  std::uint64_t links_ = 0;
  std::int64_t modified_ns_ = 0;
};

// Returns the whole file as a string. Fails with kUnsupported if it is larger than `max_bytes`.
[[nodiscard]] Result<std::string> read_file(const SourceFile& file, std::uint64_t max_bytes);

}  // namespace onnx_external
