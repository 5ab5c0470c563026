// Makes the bytes of a fuzzer available as a file in memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace onnx_external {

// Returns a descriptor of a file with these bytes. All calls use the same file, because creating
// one takes longer than reading most inputs. The file can also be opened by its path.
inline int memory_descriptor(const void* data, std::size_t size) {
  static const UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  const std::span bytes(static_cast<const std::byte*>(data), size);
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      !write_all(fd.get(), 0, bytes, "fuzz")) {
    std::abort();
  }
  return fd.get();
}
inline std::filesystem::path memory_path(const void* data, std::size_t size) {
  return "/proc/self/fd/" + std::to_string(memory_descriptor(data, size));
}

// `path` is used in messages, and to look for other files next to the file.
inline std::shared_ptr<const SourceFile> memory_file(const void* data, std::size_t size,
                                                     const std::filesystem::path& path = "fuzz") {
  UniqueFd fd(::fcntl(memory_descriptor(data, size), F_DUPFD_CLOEXEC, 0));
  auto file = SourceFile::adopt(std::move(fd), path);
  if (!file) {
    std::abort();
  }
  return *std::move(file);
}
inline std::shared_ptr<const SourceFile> memory_file(const std::string& bytes) {
  return memory_file(bytes.data(), bytes.size());
}

}  // namespace onnx_external
