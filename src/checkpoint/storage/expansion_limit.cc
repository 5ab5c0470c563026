#include "checkpoint/storage/expansion_limit.h"

#include <algorithm>

#include "base/remedy.h"
#include "base/size_text.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {

bool expands_too_far(std::uint64_t bytes, std::uint64_t stored, std::uint64_t max_expand) {
  return bytes > kAlwaysExpandedBytes && bytes / std::max<std::uint64_t>(max_expand, 1) > stored;
}

Status check_expanded(const std::string& what, std::uint64_t bytes, std::uint64_t stored,
                      std::uint64_t max_expand) {
  if (!expands_too_far(bytes, stored, max_expand)) {
    return {};
  }
  return fail_with(ErrorCode::kUnsupported,
                   what + " have " + size_text(bytes) + ", in files that store " +
                       size_text(stored) + "; at most " + std::to_string(max_expand) +
                       " times is allowed",
                   {{"max-expand", "N", "if they are trusted to grow N times"}});
}

}  // namespace onnx_external
