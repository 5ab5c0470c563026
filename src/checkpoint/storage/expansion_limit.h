// The limit on what a few bytes of file may be made to grow to: OpenOptions::max_expand.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_external/result.h"

namespace onnx_external {

// More than `max_expand` times what the files store, and more than kAlwaysExpandedBytes.
[[nodiscard]] bool expands_too_far(std::uint64_t bytes, std::uint64_t stored,
                                   std::uint64_t max_expand);

// kUnsupported when they do, with the option that raises the limit. `what`: the tensors that have
// these bytes, "the tensors to read".
[[nodiscard]] Status check_expanded(const std::string& what, std::uint64_t bytes,
                                    std::uint64_t stored, std::uint64_t max_expand);

}  // namespace onnx_external
