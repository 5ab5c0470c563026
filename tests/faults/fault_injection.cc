#include "faults/fault_injection.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>

namespace onnx_external {
namespace {

Fault active = Fault::kNone;
std::size_t target = 0;
std::size_t calls = 0;
int error_to_give = 0;
std::size_t file_system_syncs = 0;

constexpr std::size_t kShortBytes = 5000;

// True when this call must fail; errno is set.
bool hit() {
  if (active == Fault::kNone) {
    return false;
  }
  const std::size_t call = calls++;
  if (active == Fault::kShort) {
    errno = EINTR;
    return call % 3 == 0;
  }
  if (active == Fault::kKill && call == target) {
    ::raise(SIGKILL);
  }
  errno = error_to_give;
  return (active == Fault::kFailOnce && call == target) ||
         (active == Fault::kFailForever && call >= target);
}

void count_file_system_sync() {
  file_system_syncs += active == Fault::kNone ? 0 : 1;
}

// Calls that Linux never interrupts on local files are left alone by kShort.
bool hit_uninterruptible() {
  return active != Fault::kShort && hit();
}

std::size_t shortened(std::size_t count) {
  return active == Fault::kShort ? std::min(count, kShortBytes) : count;
}

}  // namespace

void inject(Fault fault, std::size_t nth, int error_number) {
  calls = 0;
  file_system_syncs = 0;
  target = nth;
  error_to_give = error_number;
  active = fault;
}

std::size_t syncs_of_file_systems() {
  return file_system_syncs;
}

std::size_t stop_injecting() {
  active = Fault::kNone;
  return calls;
}

}  // namespace onnx_external

using onnx_external::count_file_system_sync;
using onnx_external::hit;
using onnx_external::hit_uninterruptible;
using onnx_external::shortened;

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t count, off_t offset) {
  return hit() ? -1 : ::syscall(SYS_pwrite64, fd, data, shortened(count), offset);
}

ssize_t pread(int fd, void* data, size_t count, off_t offset) {
  return hit() ? -1 : ::syscall(SYS_pread64, fd, data, shortened(count), offset);
}

ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
               unsigned int flags) {
  return hit() ? -1
               : ::syscall(SYS_splice, in, in_offset, out, out_offset, shortened(count), flags);
}

int fsync(int fd) {
  return hit() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd));
}

int syncfs(int fd) noexcept {
  count_file_system_sync();
  return hit() ? -1 : static_cast<int>(::syscall(SYS_syncfs, fd));
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return hit() ? -1 : static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, length));
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0 && hit_uninterruptible()) {
    return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return hit_uninterruptible() ? -1 : static_cast<int>(::syscall(SYS_mkdir, path, mode));
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return hit_uninterruptible() ? -1 : static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode));
}

int renameat2(int from, const char* old_path, int to, const char* new_path,
              unsigned int flags) noexcept {
  return hit_uninterruptible()
             ? -1
             : static_cast<int>(::syscall(SYS_renameat2, from, old_path, to, new_path, flags));
}

int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  return hit_uninterruptible()
             ? -1
             : static_cast<int>(::syscall(SYS_renameat2, from, old_path, to, new_path, 0));
}

}  // extern "C"
