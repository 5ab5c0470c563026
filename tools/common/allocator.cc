#include "common/allocator.h"

#ifdef ONNX_EXTERNAL_MIMALLOC
#include <fmt/format.h>
#include <mimalloc.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

#include "base/parallel.h"
#include "common/command.h"

namespace {

constinit bool may_throw = false;  // set before the first thread starts

// mimalloc's own operator new ends the process by SIGABRT if memory runs out, because its library
// is built as C, which cannot throw.
void* or_bad_alloc(void* memory) {
  if (memory != nullptr) {
    return memory;
  }
  if (may_throw) {
    throw std::bad_alloc();
  }
  for (const char* text : {"error: before the start: ", onnx_external::kOutOfMemory, "\n"}) {
    (void)!::write(STDERR_FILENO, text, std::strlen(text));
  }
  ::_exit(onnx_external::kFailed);
}

}  // namespace

// The other forms are mimalloc's; they return null, or free memory.
void* operator new(std::size_t size) {
  return or_bad_alloc(mi_malloc(size));
}
void* operator new[](std::size_t size) {
  return or_bad_alloc(mi_malloc(size));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_bad_alloc(mi_malloc_aligned(size, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return or_bad_alloc(mi_malloc_aligned(size, static_cast<std::size_t>(alignment)));
}

namespace onnx_external {

// Asking for the version also makes the linker keep the library.
std::string allocator_text() {
  const int version = mi_version();
  return fmt::format("mimalloc {}.{}.{}\n", version / 100, version / 10 % 10, version % 10);
}

void throw_bad_alloc_from_now_on() {
  may_throw = true;
}

}  // namespace onnx_external
#else
namespace onnx_external {

std::string allocator_text() {
  return "";
}

void throw_bad_alloc_from_now_on() {}

}  // namespace onnx_external
#endif
