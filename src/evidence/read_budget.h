// Limits the total number of bytes of a model and a checkpoint that are read to compare tensors.
#pragma once

#include <cstdint>

#include "evidence/byte_stream.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Tensors may share bytes and files may have holes, so a small file could otherwise cause any
// amount of reading. The limit is kAlwaysRead bytes plus kMaxTimesRead times the bytes that the
// files store.
inline constexpr std::uint64_t kMaxTimesRead = 16;
inline constexpr std::uint64_t kAlwaysRead = std::uint64_t{1} << 30;

// The number of bytes that may still be read. For use by one thread at a time.
class ReadBudget {
 public:
  ReadBudget(const Model& model, const Checkpoint& checkpoint);

  // Counts bytes that will be read. Fails with kUnsupported once the budget is exceeded.
  [[nodiscard]] Status take(std::uint64_t bytes);

  // Returns a stream of the same bytes whose reads call take(). The budget must outlive the result.
  [[nodiscard]] ByteStream counted(ByteStream stream);

 private:
  std::uint64_t left_ = kAlwaysRead;
};

}  // namespace onnx_external
