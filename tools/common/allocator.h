// Controls memory allocation in the commands: states which allocator they use (mimalloc if it is
// installed), and defines what happens if memory runs out.
#pragma once

#include <string>

namespace onnx_external {

// Returns the name and version of the allocator as a line of text, "mimalloc 2.0.9\n"; empty if the
// commands use the C library's allocator.
[[nodiscard]] std::string allocator_text();

// Makes allocations throw std::bad_alloc if memory runs out. Without this call, while libraries are
// being initialized, the process ends immediately with a message and kFailed instead, because
// nothing could catch the exception.
void throw_bad_alloc_from_now_on();

}  // namespace onnx_external
