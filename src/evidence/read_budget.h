// How much of a model and a checkpoint may be read to find out what only bytes tell.
#pragma once

#include <cstdint>

#include "evidence/byte_stream.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Tensors may share their bytes, and files may have holes, so a few bytes could ask for any amount
// of reading: so many times what the files store, and so many bytes in any case.
inline constexpr std::uint64_t kMaxTimesRead = 16;
inline constexpr std::uint64_t kAlwaysRead = std::uint64_t{1} << 30;

// One thread at a time.
class ReadBudget {
 public:
  ReadBudget(const Model& model, const Checkpoint& checkpoint);

  // kUnsupported once more than the budget was taken.
  [[nodiscard]] Status take(std::uint64_t bytes);

  // The same stream, which takes what is read of it. The budget must outlive it.
  [[nodiscard]] ByteStream counted(ByteStream stream);

 private:
  std::uint64_t left_ = kAlwaysRead;
};

}  // namespace onnx_external
