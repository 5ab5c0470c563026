// What the library's own floors may do with a Checkpoint that its users may not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

struct CheckpointAccess {
  using Contents = Checkpoint::Contents;  // file_contents.h

  [[nodiscard]] static Checkpoint make(std::unique_ptr<Contents> contents);
  // Without tensors.
  [[nodiscard]] static Checkpoint make_empty();

  // The open files, same index as Checkpoint::files().
  [[nodiscard]] static const std::vector<std::shared_ptr<const SourceFile>>& files(
      const Checkpoint& checkpoint);

  // All of a matrix, its rows `pitch` bytes apart; what lies between them may change.
  [[nodiscard]] static Status read_rows(const Checkpoint& checkpoint, const TensorView& view,
                                        std::uint64_t pitch, std::span<std::byte> out);
};

}  // namespace onnx_external
