// The commands' allocator: mimalloc if it is installed, and what happens if memory runs out.
#pragma once

#include <string>

namespace onnx_external {

// "mimalloc 2.0.9\n"; empty if the commands use the C library's allocator.
[[nodiscard]] std::string allocator_text();

// From now on a lack of memory throws std::bad_alloc. Before this call, while libraries initialize
// themselves, nothing could catch it, so the process ends at once with a message and kFailed.
void throw_bad_alloc_from_now_on();

}  // namespace onnx_external
