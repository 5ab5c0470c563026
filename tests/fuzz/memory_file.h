// Bytes of a fuzzer as a file that only memory holds.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/file.h"

namespace onnx_external {

inline std::shared_ptr<const SourceFile> memory_file(const std::uint8_t* data, std::size_t size) {
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || !write_all(fd.get(), 0, std::as_bytes(std::span(data, size)), "fuzz")) {
    return nullptr;
  }
  auto file = SourceFile::adopt(std::move(fd), "fuzz");
  return file ? *file : nullptr;
}

}  // namespace onnx_external
