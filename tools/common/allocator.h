// The commands' memory: mimalloc where it is installed, and what happens when there is none left.
#pragma once

#include <string>

namespace onnx_external {

// "mimalloc 2.0.9\n"; empty when the commands use the C library's memory.
[[nodiscard]] std::string allocator_text();

// From now on a lack of memory is std::bad_alloc. Before it, while libraries set themselves up,
// nobody could catch one: the process ends at once with a message and kFailed.
void throw_bad_alloc_from_now_on();

}  // namespace onnx_external
