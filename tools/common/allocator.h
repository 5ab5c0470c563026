// Controls memory allocation in the commands: says which allocator they use (mimalloc if it is
// installed), and what happens if memory runs out.
#pragma once

#include <string>

namespace onnx_external {

// Returns "mimalloc 2.0.9\n"; empty if the commands use the C library's allocator.
[[nodiscard]] std::string allocator_text();

// After this call, a lack of memory throws std::bad_alloc. Before it, while libraries are being
// initialized, nothing could catch the exception, so the process ends at once with a message and
// kFailed.
void throw_bad_alloc_from_now_on();

}  // namespace onnx_external
