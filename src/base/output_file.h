// Creates files in an open folder and writes them at explicit offsets. An existing entry is never
// replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The minimum size for preallocation, which speeds up the copying of larger files and slows down
// that of smaller ones.
inline constexpr std::uint64_t kMinPreallocatedBytes = std::uint64_t{256} << 10;

// A file that is being written. Several threads may write different ranges at once; the other
// members are for one thread at a time. The descriptor stays open until close(), because only the
// descriptor that wrote the bytes reliably reports a write-back error. The destructor closes the
// file without removing it. The bytes are known to be written only if close() has succeeded.
class OutputFile {
 public:
  // Creates `name` in `folder` with mode 0666 & ~umask, and calls preallocate(bytes). Fails with
  // kAlreadyExists if an entry of any kind has that name, including a symbolic link or a FIFO.
  // `folder` is not used after the call.
  [[nodiscard]] static Result<OutputFile> create(const Directory& folder, const std::string& name,
                                                 std::uint64_t bytes = 0);

  // Opens a file that create() created earlier, possibly in another process, to continue writing.
  // Fails with kInvalidArgument for anything except a regular file with one link that belongs to
  // this user.
  [[nodiscard]] static Result<OutputFile> reopen(const Directory& folder, const std::string& name);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Reserves blocks for `bytes` bytes, so that a full disk is detected before anything is written.
  // Does nothing for fewer than kMinPreallocatedBytes, or if the file system does not support it.
  [[nodiscard]] Status preallocate(std::uint64_t bytes);

  // Sets the size of the file; parts that are not written are holes and read as zeros.
  [[nodiscard]] Status grow(std::uint64_t bytes) const;

  [[nodiscard]] Status write(std::uint64_t offset, std::span<const std::byte> bytes) const;

  [[nodiscard]] Result<std::uint64_t> size() const;

  // Asks the kernel to drop the file from the page cache, so that later reads come from the disk.
  // This is only a hint, and has no effect on bytes that were not synced.
  void drop_cache() const;

  // Asks the kernel to start writing dirty pages. Does not wait for the disk, and ignores errors.
  void start_writeback() const;

  // Waits until the bytes are on the disk. Do not retry after an error, because the kernel marks
  // failed pages as clean, so a second call could succeed although the bytes are not on the disk.
  [[nodiscard]] Status sync() const;

  [[nodiscard]] Status close();

  // Ends the writing: returns the same file for reading.
  [[nodiscard]] Result<std::shared_ptr<const SourceFile>> to_source() &&;

 private:
  OutputFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::unique_ptr<std::mutex> turn_ = std::make_unique<std::mutex>();  // of long writes
  std::string name_;  // includes the folder, for messages
};

// Writes a file so that it appears either complete or not at all. Errors: kAlreadyExists if the
// file exists and `replace` is kNo; kIo.
[[nodiscard]] Status write_whole_file(const std::filesystem::path& path, std::string_view text,
                                      Replace replace);

}  // namespace onnx_external
