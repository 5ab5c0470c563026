#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/try.h"

namespace onnx_external {

Result<OutputFile> OutputFile::create(const Directory& folder, const std::string& name,
                                      std::uint64_t bytes) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(::openat(folder.fd(), name.c_str(), kFlags, 0666));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot create"));
  }
  OutputFile file(std::move(fd), folder.child(name));
  TRY(file.preallocate(bytes));
  return file;
}

Result<OutputFile> OutputFile::reopen(const Directory& folder, const std::string& name) {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd fd(::openat(folder.fd(), name.c_str(), kFlags));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    return fail(errno_error(errno, folder.child(name) + ": cannot open"));
  }
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1 || info.st_uid != ::geteuid()) {
    return fail(
        ErrorCode::kInvalidArgument,
        folder.child(name) +
            ": is not a regular file that belongs to this user and has no other hard links");
  }
  return OutputFile(std::move(fd), folder.child(name));
}

Status OutputFile::preallocate(std::uint64_t bytes) {
  if (bytes < kMinPreallocatedBytes) {
    return {};
  }
  const int result =
      uninterrupted([&] { return ::fallocate(fd(), 0, 0, static_cast<off_t>(bytes)); });
  // Other errors come from file systems and containers in which this call does not work.
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    return fail(errno_error(errno, name_ + ": cannot reserve " + std::to_string(bytes) + " bytes"));
  }
  return {};
}

Status OutputFile::grow(std::uint64_t bytes) const {
  if (uninterrupted([&] { return ::ftruncate(fd(), static_cast<off_t>(bytes)); }) != 0) {
    return fail(
        errno_error(errno, name_ + ": cannot resize it to " + std::to_string(bytes) + " bytes"));
  }
  return {};
}

Status OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  // The page cache stores a long write in large pages, for which a kernel with fragmented memory
  // must first make room: 4 MB took 1 ms in chunks, and up to 18 ms at once.
  constexpr std::size_t kWrittenAtOnce = std::size_t{256} << 10;
  // File systems let one thread at a time write to a file. Threads whose chunks alternate would
  // wait for each other at every chunk; instead, one writes while the others read.
  std::unique_lock<std::mutex> turn(*turn_, std::defer_lock);
  if (bytes.size() > kWrittenAtOnce) {
    turn.lock();
  }
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), kWrittenAtOnce));
    TRY(write_all(fd(), offset, chunk, name_));
    offset += chunk.size();
    bytes = bytes.subspan(chunk.size());
  }
  return {};
}

Result<std::uint64_t> OutputFile::size() const {
  struct stat info {};
  if (::fstat(fd(), &info) != 0) {
    return fail(errno_error(errno, name_ + ": cannot examine"));
  }
  return static_cast<std::uint64_t>(info.st_size);
}

void OutputFile::drop_cache() const {
  drop_pages(fd());
}

void OutputFile::start_writeback() const {
  // sync() reports the error again.
  (void)::sync_file_range(fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

Status OutputFile::sync() const {
  return sync_file(fd(), name_);
}

Status OutputFile::close() {
  // Even after EINTR, Linux has closed the descriptor.
  if (::close(fd_.release()) != 0 && errno != EINTR) {
    return fail(errno_error(errno, name_ + ": cannot close"));
  }
  return {};
}

Result<std::shared_ptr<const SourceFile>> OutputFile::to_source() && {
  return SourceFile::adopt(std::move(fd_), name_);
}

Status write_whole_file(const std::filesystem::path& path, std::string_view text, Replace replace) {
  TRY_ASSIGN(const auto folder, Directory::open(path.parent_path()));
  const std::string name = path.filename().string();
  const std::string staged = "." + name + "." + std::to_string(::getpid()) + ".tmp";
  TRY_ASSIGN(auto file, OutputFile::create(folder, staged));
  Status status = file.write(0, std::as_bytes(std::span(text)));
  if (status) {
    status = file.close();
  }
  if (status) {
    status = rename_entry(folder, staged, folder, name, replace);
  }
  if (!status) {
    (void)folder.remove_file(staged);
  }
  return status;
}

}  // namespace onnx_external
