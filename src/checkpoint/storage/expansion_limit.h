// Enforces OpenOptions::max_expand, the limit on how far a small file may expand.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// How many times larger the floats of a quantized weight are than codes of one bit, the smallest;
// each code is used once.
inline constexpr std::uint64_t kFloatsPerCodes = 32;

// True if `bytes` exceed both `max_expand` times the bytes that the files store and
// kAlwaysExpandedBytes.
[[nodiscard]] bool expands_too_far(std::uint64_t bytes, std::uint64_t stored,
                                   std::uint64_t max_expand);

// kUnsupported in that case, with the option that raises the limit. `what` names the tensors with
// these bytes: "the tensors to read".
[[nodiscard]] Status check_expanded(const std::string& what, std::uint64_t bytes,
                                    std::uint64_t stored, std::uint64_t max_expand);

// The limit for all tensors: a small file can be viewed as an output of any size, by a stride of 0
// or many overlapping views. `where` is the file, for the message.
[[nodiscard]] Status check_tensor_expansion(const FileContents& all, std::uint64_t max_expand,
                                            const std::string& where);

}  // namespace onnx_external
