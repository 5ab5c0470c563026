// Limits how many bytes of a model and a checkpoint may be read to compare tensors.
#pragma once

#include <cstdint>

#include "evidence/byte_stream.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Tensors may share bytes and files may have holes, so a small file could cause any amount of
// reading. The limit is a multiple of what the files store, plus a number of bytes in any case.
inline constexpr std::uint64_t kMaxTimesRead = 16;
inline constexpr std::uint64_t kAlwaysRead = std::uint64_t{1} << 30;

// One thread at a time.
class ReadBudget {
 public:
  ReadBudget(const Model& model, const Checkpoint& checkpoint);

  // kUnsupported once the budget is exceeded.
  [[nodiscard]] Status take(std::uint64_t bytes);

  // The same stream, but charged to the budget, which must outlive it.
  [[nodiscard]] ByteStream counted(ByteStream stream);

 private:
  std::uint64_t left_ = kAlwaysRead;
};

}  // namespace onnx_external
