// Enforces OpenOptions::max_expand, the limit on how much larger than its file the contents of a
// checkpoint may become.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The size of the floats of a quantized weight relative to 1-bit codes, the smallest ones. Each
// code is used once.
inline constexpr std::uint64_t kFloatsPerCodes = 32;

// Returns whether `bytes` exceeds both `max_expand` times `stored`, the bytes in the files, and
// kAlwaysExpandedBytes.
[[nodiscard]] bool expands_too_far(std::uint64_t bytes, std::uint64_t stored,
                                   std::uint64_t max_expand);

// kUnsupported in that case; the message names the option that raises the limit. `what` names the
// tensors with these bytes: "the tensors to read".
[[nodiscard]] Status check_expanded(const std::string& what, std::uint64_t bytes,
                                    std::uint64_t stored, std::uint64_t max_expand);

// Checks all tensors together, because a small file can declare views of any total size, by a
// stride of 0 or by many overlapping views. `where` is the file, for the message.
[[nodiscard]] Status check_tensor_expansion(const FileContents& all, std::uint64_t max_expand,
                                            const std::string& where);

}  // namespace onnx_external
