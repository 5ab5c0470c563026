// Bytes of a fuzzer as a file that only memory holds.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"

namespace onnx_external {

inline std::shared_ptr<const SourceFile> memory_file(const void* data, std::size_t size,
                                                     const std::filesystem::path& path = "fuzz") {
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || !write_all(fd.get(), 0, {static_cast<const std::byte*>(data), size}, "fuzz")) {
    return nullptr;
  }
  auto file = SourceFile::adopt(std::move(fd), path);
  return file ? *file : nullptr;
}

}  // namespace onnx_external
