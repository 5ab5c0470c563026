// Access to the internal state of a Checkpoint for other files of the library.
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

struct QuantizedMatrix;  // quantized/quantized_matrix.h

struct CheckpointAccess {
  using Contents = Checkpoint::Contents;  // file_contents.h

  [[nodiscard]] static Checkpoint make(std::unique_ptr<Contents> contents);
  [[nodiscard]] static const Contents& contents(const Checkpoint& checkpoint) {
    return *checkpoint.contents_;
  }
  [[nodiscard]] static Contents& contents(Checkpoint& checkpoint) { return *checkpoint.contents_; }
  // Without tensors.
  [[nodiscard]] static Checkpoint make_empty();

  // The open files, same index as Checkpoint::files().
  [[nodiscard]] static const std::vector<std::shared_ptr<const SourceFile>>& files(
      const Checkpoint& checkpoint);

  // Makes the bytes that `view` needs, if they are made (provided_tensors.h), and keeps them while
  // the result lives; the thread must hold no others. Errors of the caller's function.
  [[nodiscard]] static Result<MemoryRuns::Held> hold(const Checkpoint& checkpoint,
                                                     const TensorView& view);

  // Appends the tensors of `others`, which are the data of models in memory. They are not keys, and
  // their names need not be unique.
  static void append_existing(Checkpoint& checkpoint, const Checkpoint& others);
  // The index of the first tensor that was appended; tensors().size() if none was.
  [[nodiscard]] static std::size_t first_existing(const Checkpoint& checkpoint);
  // The index of one of them; kInvalidArgument if there are fewer.
  [[nodiscard]] static Result<std::size_t> given_tensor(const Checkpoint& checkpoint,
                                                        std::uint64_t number);

  // Returns the quantized weight from which the floats of a storage are computed; null if there is
  // none.
  [[nodiscard]] static std::shared_ptr<const QuantizedMatrix> quantized(
      const Checkpoint& checkpoint, std::uint32_t storage);

  // All of a matrix, its rows `pitch` bytes apart; what lies between them may change.
  [[nodiscard]] static Status read_rows(const Checkpoint& checkpoint, const TensorView& view,
                                        std::uint64_t pitch, std::span<std::byte> out);
};

}  // namespace onnx_external
