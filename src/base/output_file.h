// New files: created in an open folder, never over something that exists, written at explicit
// offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reserving room first pays from this size up (performance: copying); smaller files get slower.
inline constexpr std::uint64_t kMinPreallocatedBytes = std::uint64_t{256} << 10;

// A file that is being written. Several threads may write different ranges at once; the other
// members are for one thread at a time. It keeps the descriptor that wrote until close(), because
// only that one is sure to see a write-back error. Destroying it closes the file and removes
// nothing; only a close() that succeeded says that the file was written.
class OutputFile {
 public:
  // Creates `name` in `folder` with mode 0666 & ~umask. Fails with kAlreadyExists for anything of
  // that name (a symbolic link or a FIFO too). `folder` is not kept.
  [[nodiscard]] static Result<OutputFile> create(const Directory& folder, const std::string& name);

  // Opens a file that create() made earlier, perhaps in another process, to go on with it.
  // kInvalidArgument for anything but a regular file with one link that belongs to this user.
  [[nodiscard]] static Result<OutputFile> reopen(const Directory& folder, const std::string& name);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Reserves the blocks of a file of `bytes`, so that a full disk shows before the work; does
  // nothing below kMinPreallocatedBytes or where the file system cannot.
  [[nodiscard]] Status preallocate(std::uint64_t bytes);

  // Gives the file this size; what is not written is a hole, of zeros.
  [[nodiscard]] Status grow(std::uint64_t bytes) const;

  [[nodiscard]] Status write(std::uint64_t offset, std::span<const std::byte> bytes) const;

  [[nodiscard]] Result<std::uint64_t> size() const;

  // Makes later reads come from the disk, where the bytes were synced before. Advice only.
  void drop_cache() const;

  // Asks the kernel to start writing back what is dirty; never waits for the disk, never fails.
  void start_writeback() const;

  // Waits until the bytes are on the disk. After a failure the file is lost: a second try could
  // succeed without the bytes (the kernel marks failed pages clean).
  [[nodiscard]] Status sync() const;

  [[nodiscard]] Status close();

 private:
  OutputFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::string name_;  // with its folder, for messages
};

}  // namespace onnx_external
