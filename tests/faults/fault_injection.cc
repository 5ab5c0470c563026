#include "faults/fault_injection.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <utility>

namespace onnx_external {
namespace {

std::atomic<Fault> active = Fault::kNone;
std::atomic<Sabotage> sabotaged = Sabotage::kNone;
FileSystem abilities;
std::atomic<std::size_t> target = 0;
std::atomic<std::size_t> calls = 0;
std::atomic<int> error_to_give = 0;
std::atomic<std::size_t> file_system_syncs = 0;
std::atomic<std::size_t> repeated_syncs = 0;
std::atomic<std::size_t> writebacks = 0;
std::atomic<ino_t> failed_file = 0;  // whose sync failed
int power_cut_folder = -1;

constexpr std::size_t kShortBytes = 5000;

// What the caller must do.
enum class Verdict { kCall, kFail, kPretend };

Verdict judge() {
  if (active == Fault::kNone) {
    return Verdict::kCall;
  }
  const std::size_t call = calls++;
  if (active == Fault::kShort) {
    errno = EINTR;
    return call % 3 == 0 ? Verdict::kFail : Verdict::kCall;
  }
  const bool is_target = call == target;
  if (is_target && active == Fault::kPowerCut) {
    (void)cut_power();
  }
  if (is_target && (active == Fault::kKill || active == Fault::kPowerCut)) {
    ::raise(SIGKILL);
  }
  if (is_target && active == Fault::kLie) {
    return Verdict::kPretend;
  }
  errno = active == Fault::kInterrupt ? EINTR : error_to_give.load();
  const bool fails = (is_target && (active == Fault::kFailOnce || active == Fault::kInterrupt)) ||
                     (active == Fault::kFailForever && call >= target);
  return fails ? Verdict::kFail : Verdict::kCall;
}

// Calls that Linux never interrupts on local files.
Verdict judge_uninterruptible() {
  return active == Fault::kShort || active == Fault::kInterrupt ? Verdict::kCall : judge();
}

// Calls whose pretended success would leave the caller waiting for bytes, or with none.
Verdict judge_unless_lying() {
  return active == Fault::kLie ? Verdict::kCall : judge();
}

template <typename Call>
auto apply(Verdict verdict, decltype(std::declval<Call>()()) pretended, const Call& call) {
  using Answer = decltype(call());
  switch (verdict) {
    case Verdict::kFail:
      return static_cast<Answer>(-1);
    case Verdict::kPretend:
      return static_cast<Answer>(pretended);
    case Verdict::kCall:
      break;
  }
  return call();
}

std::size_t shortened(std::size_t count) {
  return active == Fault::kShort ? std::min(count, kShortBytes) : count;
}

ino_t inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

int sync(int fd, long number) {
  if (active != Fault::kNone && failed_file != 0 && failed_file == inode_of(fd)) {
    ++repeated_syncs;
  }
  struct stat info {};
  if (abilities.folder_syncs != 0 && ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = abilities.folder_syncs;
    return -1;
  }
  const int answer = apply(judge(), 0, [&] {
    return sabotaged == Sabotage::kNoSync ? 0 : static_cast<int>(::syscall(number, fd));
  });
  if (answer != 0 && active != Fault::kNone && errno != EINTR) {
    const int error_number = errno;
    failed_file = inode_of(fd);
    errno = error_number;
  }
  return answer;
}

// A rename that waits until another one is done.
struct Waiting {
  int from = -1;
  int to = -1;
  std::array<char, 256> old_path{};
  std::array<char, 256> new_path{};
  unsigned int flags = 0;
};
Waiting waiting;

// Its descriptors would keep the lock on the output folder.
void forget_waiting() {
  if (waiting.from >= 0) {
    ::close(waiting.from);
    ::close(waiting.to);
  }
  waiting = Waiting{};
}

// The error with which such a file system fails the rename; 0: none.
int rename_error(int from, const char* old_path, int to, const char* new_path, unsigned int flags) {
  struct stat info {};
  const bool is_folder =
      ::fstatat(from, old_path, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
  const bool replaces = ::fstatat(to, new_path, &info, AT_SYMLINK_NOFOLLOW) == 0;
  return abilities.renames != 0                       ? abilities.renames
         : flags != 0 && !abilities.rename_flags      ? EINVAL
         : is_folder && abilities.folder_renames != 0 ? abilities.folder_renames
         : replaces                                   ? abilities.replacements
                                                      : 0;
}

int rename_now(int from, const char* old_path, int to, const char* new_path, unsigned int flags) {
  return apply(judge_uninterruptible(), 0, [&] {
    if (const int error = rename_error(from, old_path, to, new_path, flags); error != 0) {
      errno = error;
      return -1;
    }
    return static_cast<int>(::syscall(SYS_renameat2, from, old_path, to, new_path, flags));
  });
}

int rename(int from, const char* old_path, int to, const char* new_path, unsigned int flags) {
  // A save that tries what the folder can do renames a file of this name.
  const bool is_probe = std::strncmp(new_path, ".save-external.", 15) == 0;
  const bool between_folders = from != to && !is_probe;
  if (sabotaged == Sabotage::kModelFirst && between_folders && waiting.from < 0) {
    waiting.from = ::dup(from);
    waiting.to = ::dup(to);
    std::strncpy(waiting.old_path.data(), old_path, waiting.old_path.size() - 1);
    std::strncpy(waiting.new_path.data(), new_path, waiting.new_path.size() - 1);
    waiting.flags = flags;
    return 0;
  }
  const int answer = rename_now(from, old_path, to, new_path, flags);
  if (answer == 0 && waiting.from >= 0 && std::strstr(old_path, ".onnx") != nullptr) {
    (void)rename_now(waiting.from, waiting.old_path.data(), waiting.to, waiting.new_path.data(),
                     waiting.flags);
    forget_waiting();
  }
  return answer;
}

}  // namespace

void inject(Fault fault, std::size_t nth, int error_number) {
  calls = 0;
  file_system_syncs = 0;
  repeated_syncs = 0;
  writebacks = 0;
  failed_file = 0;
  forget_waiting();
  target = nth;
  error_to_give = error_number;
  active = fault;
}

void sabotage(Sabotage step) {
  sabotaged = step;
}

void pretend(FileSystem system) {
  abilities = system;
}

void set_power_cut_target(const char* folder) {
  power_cut_folder = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool cut_power() {
  // XFS_IOC_GOINGDOWN (xfs_fs.h) and EXT4_IOC_SHUTDOWN (ext4.h) are the same; 2: no log flush.
  const unsigned long request = _IOR('X', 125, std::uint32_t);
  std::uint32_t how = 2;
  return power_cut_folder >= 0 && ::ioctl(power_cut_folder, request, &how) == 0;
}

std::size_t syncs_of_file_systems() {
  return file_system_syncs;
}

std::size_t syncs_after_a_failure() {
  return repeated_syncs;
}

std::size_t started_writebacks() {
  return writebacks;
}

std::size_t stop_injecting() {
  forget_waiting();
  active = Fault::kNone;
  return calls;
}

}  // namespace onnx_external

using onnx_external::abilities;
using onnx_external::active;
using onnx_external::apply;
using onnx_external::Fault;
using onnx_external::file_system_syncs;
using onnx_external::judge;
using onnx_external::judge_uninterruptible;
using onnx_external::judge_unless_lying;
using onnx_external::Sabotage;
using onnx_external::sabotaged;
using onnx_external::shortened;
using onnx_external::Verdict;
using onnx_external::writebacks;

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t count, off_t offset) {
  return apply(judge(), static_cast<ssize_t>(count), [&] {
    return static_cast<ssize_t>(::syscall(SYS_pwrite64, fd, data, shortened(count), offset));
  });
}

ssize_t pread(int fd, void* data, size_t count, off_t offset) {
  return apply(judge_unless_lying(), static_cast<ssize_t>(count), [&] {
    return static_cast<ssize_t>(::syscall(SYS_pread64, fd, data, shortened(count), offset));
  });
}

ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
               unsigned int flags) {
  if (abilities.copies != 0) {
    errno = abilities.copies;
    return -1;
  }
  return apply(judge_unless_lying(), static_cast<ssize_t>(count), [&] {
    return static_cast<ssize_t>(
        ::syscall(SYS_splice, in, in_offset, out, out_offset, shortened(count), flags));
  });
}

ssize_t copy_file_range(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                        unsigned int flags) {
  if (abilities.copies != 0) {
    errno = abilities.copies;
    return -1;
  }
  return apply(judge_unless_lying(), static_cast<ssize_t>(count), [&] {
    return static_cast<ssize_t>(
        ::syscall(SYS_copy_file_range, in, in_offset, out, out_offset, shortened(count), flags));
  });
}

int fsync(int fd) {
  return onnx_external::sync(fd, SYS_fsync);
}

int syncfs(int fd) noexcept {
  file_system_syncs += active == Fault::kNone ? 0 : 1;
  return onnx_external::sync(fd, SYS_syncfs);
}

int sync_file_range(int fd, off64_t offset, off64_t length, unsigned int flags) {
  ++writebacks;
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, length, flags));
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return apply(judge(), 0, [&] {
    if (!abilities.room || abilities.reservations != 0) {
      errno = abilities.room ? abilities.reservations : ENOSPC;
      return -1;
    }
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, length));
  });
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const Verdict verdict =
      (flags & O_CREAT) != 0 && active != Fault::kLie ? judge_uninterruptible() : Verdict::kCall;
  return apply(verdict, -1,
               [&] { return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode)); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return apply(judge_uninterruptible(), 0,
               [&] { return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode)); });
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return apply(judge_uninterruptible(), 0,
               [&] { return static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode)); });
}

int renameat2(int from, const char* old_path, int to, const char* new_path,
              unsigned int flags) noexcept {
  return onnx_external::rename(from, old_path, to, new_path, flags);
}

int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  return onnx_external::rename(from, old_path, to, new_path, 0);
}

int flock(int fd, int operation) noexcept {
  if (!abilities.locks) {
    errno = ENOLCK;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

int fstatvfs(int fd, struct statvfs* info) noexcept {
  struct statfs system {};
  const int answer = ::fstatfs(fd, &system);
  *info = {};
  info->f_frsize = static_cast<unsigned long>(system.f_bsize);
  info->f_blocks = sabotaged == Sabotage::kNoFreeSpace ? 0 : system.f_blocks;
  info->f_bfree = system.f_bfree;
  info->f_bavail = system.f_bavail;
  return answer;
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return sabotaged == Sabotage::kNoCleanup && active != Fault::kNone
             ? 0
             : static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

}  // extern "C"
