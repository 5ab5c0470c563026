// What one attempt costs: the most memory that it held at once.
#pragma once

#include <cstddef>

namespace onnx_external {

// Counts what operator new gives, in all threads; this program's operators do the counting.
void reset_peak();
[[nodiscard]] std::size_t peak_bytes();  // above what was held at reset_peak()

}  // namespace onnx_external
