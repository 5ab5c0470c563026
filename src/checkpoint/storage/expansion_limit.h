// The limit on how far a small file may expand: OpenOptions::max_expand.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_external/result.h"

namespace onnx_external {

// True if `bytes` exceed both `max_expand` times the bytes that the files store and
// kAlwaysExpandedBytes.
[[nodiscard]] bool expands_too_far(std::uint64_t bytes, std::uint64_t stored,
                                   std::uint64_t max_expand);

// kUnsupported in that case, with the option that raises the limit. `what` names the tensors with
// these bytes: "the tensors to read".
[[nodiscard]] Status check_expanded(const std::string& what, std::uint64_t bytes,
                                    std::uint64_t stored, std::uint64_t max_expand);

}  // namespace onnx_external
