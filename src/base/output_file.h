// Writes new files, which are created in an open folder, never replace an existing entry, and are
// written at explicit offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Preallocation speeds up copying from this size on and slows down smaller files.
inline constexpr std::uint64_t kMinPreallocatedBytes = std::uint64_t{256} << 10;

// A file that is being written. Several threads may write different ranges at once; the other
// members are for one thread at a time. The descriptor stays open until close(), because only the
// descriptor that wrote the bytes is sure to report a write-back error. The destructor closes the
// file and does not remove it; only after a successful close() is the file known to be written.
class OutputFile {
 public:
  // Creates `name` in `folder` with mode 0666 & ~umask. Fails with kAlreadyExists if any entry has
  // that name, even a symbolic link or a FIFO. `folder` need not outlive the call.
  [[nodiscard]] static Result<OutputFile> create(const Directory& folder, const std::string& name);

  // Opens a file that create() made earlier, perhaps in another process, to continue it. Fails with
  // kInvalidArgument for anything except a regular file with one link that belongs to this user.
  [[nodiscard]] static Result<OutputFile> reopen(const Directory& folder, const std::string& name);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Reserves blocks for `bytes` bytes, so that a full disk is noticed before anything is written.
  // Does nothing for fewer than kMinPreallocatedBytes, or if the file system does not support it.
  [[nodiscard]] Status preallocate(std::uint64_t bytes);

  // Sets the size of the file; parts that are not written are holes and read as zeros.
  [[nodiscard]] Status grow(std::uint64_t bytes) const;

  [[nodiscard]] Status write(std::uint64_t offset, std::span<const std::byte> bytes) const;

  [[nodiscard]] Result<std::uint64_t> size() const;

  // Makes later reads come from the disk, if the bytes were synced before. This is only advice to
  // the kernel.
  void drop_cache() const;

  // Asks the kernel to start writing dirty pages; never waits for the disk, never fails.
  void start_writeback() const;

  // Waits until the bytes are on the disk. After a failure the file is lost: the kernel marks
  // failed pages clean, so a second attempt could succeed without the bytes.
  [[nodiscard]] Status sync() const;

  [[nodiscard]] Status close();

  // Ends the writing: returns the same file for reading.
  [[nodiscard]] Result<std::shared_ptr<const SourceFile>> to_source() &&;

 private:
  OutputFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::string name_;  // includes the folder, for messages
};

// Writes a file so that it appears either complete or not at all. Errors: kAlreadyExists if it
// exists and may not be replaced; kIo.
[[nodiscard]] Status write_whole_file(const std::filesystem::path& path, std::string_view text,
                                      Replace replace);

}  // namespace onnx_external
