#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace onnx_external {

Result<OutputFile> OutputFile::create(const Directory& folder, const std::string& name) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(::openat(folder.fd(), name.c_str(), kFlags, 0666));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot create"));
  }
  return OutputFile(std::move(fd), folder.child(name));
}

Result<OutputFile> OutputFile::reopen(const Directory& folder, const std::string& name) {
  UniqueFd fd(::openat(folder.fd(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot open again"));
  }
  return OutputFile(std::move(fd), folder.child(name));
}

Status OutputFile::preallocate(std::uint64_t bytes) {
  if (bytes < kMinPreallocatedBytes) {
    return {};
  }
  int result = 0;
  do {
    result = ::fallocate(fd(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    return fail(errno_error(errno, name_ + ": cannot reserve " + std::to_string(bytes) + " bytes"));
  }
  return {};
}

Status OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  return write_all(fd(), offset, bytes, name_);
}

void OutputFile::start_writeback() const {
  // An error shows again at sync().
  (void)::sync_file_range(fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

Status OutputFile::sync() const {
  int result = 0;
  do {
    result = ::fsync(fd());
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return fail(errno_error(errno, name_ + ": cannot write to the disk"));
  }
  return {};
}

Status OutputFile::close() {
  // EINTR: Linux has closed the descriptor all the same.
  if (::close(fd_.release()) != 0 && errno != EINTR) {
    return fail(errno_error(errno, name_ + ": cannot close"));
  }
  return {};
}

}  // namespace onnx_external
