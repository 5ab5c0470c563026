#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked_math.h"
#include "base/nonce.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * kNanosecondsPerSecond + time.tv_nsec;
}

ErrorCode code_for(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Error errno_error(int error_number, const std::string& what) {
  const char* const fix =
      error_number == EMFILE || error_number == ENFILE
          ? "; raise the limit on open files (ulimit -n)"
      : error_number == ENOSPC || error_number == EDQUOT ? "; free some disk space"
      : error_number == ENOMEM ? "; raise the memory limit (ulimit -v, or the container's)"
                               : "";
  return Error{code_for(error_number), what + ": " + std::strerror(error_number) + fix};
}

Error sync_error(int error_number, const std::string& what) {
  Error error = errno_error(error_number, what);
  return error_with(error.code, std::move(error.message),
                    {{RemedyOption::kNoFsync, "", "if this file system does not support fsync"}});
}

Error cut_short(const std::string& name, std::uint64_t offset, std::uint64_t missing) {
  return Error{ErrorCode::kCorrupt,
               name + ": byte " + std::to_string(offset) + ": the file ends here, but " +
                   std::to_string(missing) +
                   " more bytes were expected; was the file truncated or changed?"};
}

Status sync_file(int fd, const std::string& name) {
  if (uninterrupted([&] { return ::fsync(fd); }) != 0) {
    return fail(sync_error(errno, name + ": cannot write to the disk"));
  }
  return {};
}

void drop_pages(int fd, std::uint64_t offset, std::uint64_t length) {
  (void)::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(length),
                        POSIX_FADV_DONTNEED);
}

Status read_exact(int fd, std::uint64_t offset, std::span<std::byte> out, const std::string& name) {
  if (!range_fits(offset, out.size(),
                  static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()))) {
    return fail(ErrorCode::kCorrupt, name + ": offset " + std::to_string(offset) +
                                         " is beyond the largest possible file size");
  }
  while (!out.empty()) {
    const ssize_t got = uninterrupted(
        [&] { return ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset)); });
    if (got < 0) {
      return fail(errno_error(errno, name + ": byte " + std::to_string(offset) + ": cannot read"));
    }
    if (got == 0) {
      return fail(cut_short(name, offset, out.size()));
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status write_all(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                 const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = uninterrupted(
        [&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (put < 0) {
      return fail(errno_error(errno, name + ": byte " + std::to_string(offset) + ": cannot write"));
    }
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Result<std::shared_ptr<const SourceFile>> SourceFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK keeps the opening of a FIFO or device from waiting; it has no effect on regular
  // files.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return fail(errno_error(errno, path.string() + ": cannot open"));
  }
  return adopt(std::move(fd), path);
}

Result<std::shared_ptr<const SourceFile>> SourceFile::adopt(UniqueFd fd,
                                                            std::filesystem::path path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return fail(errno_error(errno, path.string() + ": cannot examine"));
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                path.string() + ": is " +
                    (S_ISDIR(info.st_mode) ? std::string("a folder") : "not a regular file"));
  }
  auto file = std::shared_ptr<SourceFile>(new SourceFile);
  file->fd_ = std::move(fd);
  file->path_ = std::move(path);
  file->size_ = static_cast<std::uint64_t>(info.st_size);
  file->device_ = info.st_dev;
  file->inode_ = info.st_ino;
  file->links_ = info.st_nlink;
  file->modified_ns_ = nanoseconds(info.st_mtim);
  return std::shared_ptr<const SourceFile>(std::move(file));
}

Result<std::shared_ptr<const SourceFile>> SourceFile::slice(
    const std::shared_ptr<const SourceFile>& whole, std::uint64_t offset, std::uint64_t size) {
  if (!range_fits(offset, size, whole->size())) {
    return fail(ErrorCode::kCorrupt, whole->name() + ": byte " + std::to_string(offset) + ": " +
                                         std::to_string(size) + " bytes are declared here, but " +
                                         "the file has " + std::to_string(whole->size()));
  }
  auto file = std::shared_ptr<SourceFile>(new SourceFile);
  file->whole_ = whole;
  file->slice_offset_ = offset;
  file->path_ = whole->path_;
  file->size_ = size;
  file->device_ = whole->device_;
  file->inode_ = whole->inode_;
  file->links_ = whole->links_;
  return std::shared_ptr<const SourceFile>(std::move(file));
}

std::shared_ptr<const SourceFile> SourceFile::of_runs(std::shared_ptr<const MemoryRuns> runs) {
  auto file = std::shared_ptr<SourceFile>(new SourceFile);
  file->size_ = runs->size();
  file->runs_ = std::move(runs);
  return file;
}

std::string SourceFile::name() const {
  if (runs_) {
    return "memory";
  }
  return whole_ ? whole_->name() + ": slice at byte " + std::to_string(slice_offset_)
                : path_.string();
}

Status SourceFile::check_range(std::uint64_t offset, std::uint64_t length) const {
  if (!range_fits(offset, length, size_)) {
    return fail(ErrorCode::kCorrupt,
                name() + ": byte " + std::to_string(offset) + ": " + std::to_string(length) +
                    " bytes were requested, but the file has " + std::to_string(size_));
  }
  return {};
}

Status SourceFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  TRY(check_range(offset, out.size()));
  if (runs_) {
    TRY_ASSIGN(const auto bytes, runs_->bytes(offset, out.size()));
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return {};
  }
  return whole_ ? whole_->read(slice_offset_ + offset, out) : read_exact(fd(), offset, out, name());
}

Result<std::span<const std::byte>> SourceFile::give(std::uint64_t offset,
                                                    std::span<std::byte> room) const {
  if (runs_) {
    TRY(check_range(offset, room.size()));
    return runs_->bytes(offset, room.size());
  }
  TRY(read(offset, room));
  return room;
}

Status SourceFile::check_unchanged() const {
  if (whole_) {
    return whole_->check_unchanged();
  }
  if (runs_) {
    return {};
  }
  struct stat info {};
  if (::fstat(fd(), &info) != 0) {
    return fail(errno_error(errno, name() + ": cannot examine"));
  }
  // The change time is not compared, because renaming or unlinking the file changes it.
  if (static_cast<std::uint64_t>(info.st_size) != size_ ||
      nanoseconds(info.st_mtim) != modified_ns_) {
    return fail(ErrorCode::kCorrupt, name() + ": was changed while it was being read; try again");
  }
  return {};
}

Result<std::string> SourceFile::stamp() const {
  if (runs() != nullptr) {
    return nonce_text();
  }
  struct stat info {};
  if (::fstat(fd(), &info) != 0) {
    return fail(errno_error(errno, name() + ": cannot examine"));
  }
  return std::to_string(info.st_ino) + ' ' + std::to_string(info.st_size) + ' ' +
         std::to_string(nanoseconds(info.st_mtim)) + ' ' +
         std::to_string(nanoseconds(info.st_ctim));
}

Result<std::string> read_file(const SourceFile& file, std::uint64_t max_bytes) {
  if (file.size() > max_bytes) {
    return fail(ErrorCode::kUnsupported, file.name() + ": " + std::to_string(file.size()) +
                                             " bytes exceed the limit of " +
                                             std::to_string(max_bytes));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace onnx_external
