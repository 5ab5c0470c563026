// Enforces OpenOptions::max_expand, which limits the size of a checkpoint's contents relative to
// the size of its files.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The maximum ratio of the size of a quantized weight's floats to the size of its codes, for codes
// of 1 bit. Each code is used once.
inline constexpr std::uint64_t kFloatsPerCodes = 32;

// Returns whether `bytes` exceeds both `max_expand` times `stored`, the bytes in the files, and
// kAlwaysExpandedBytes.
[[nodiscard]] bool expands_too_far(std::uint64_t bytes, std::uint64_t stored,
                                   std::uint64_t max_expand);

// Fails with kUnsupported if expands_too_far() is true. The message states the option that raises
// the limit. In the message, `what` stands for the tensors: "the tensors to read".
[[nodiscard]] Status check_expanded(const std::string& what, std::uint64_t bytes,
                                    std::uint64_t stored, std::uint64_t max_expand);

// Checks the total size of all tensors, because a small file can declare views of any total size,
// by a stride of 0 or by many overlapping views. `where` is the name of the file in the message.
[[nodiscard]] Status check_tensor_expansion(const FileContents& all, std::uint64_t max_expand,
                                            const std::string& where);

}  // namespace onnx_external
