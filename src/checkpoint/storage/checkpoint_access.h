// Gives other files of the library access to the internal state of a Checkpoint.
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
  // Makes a checkpoint without tensors.
  [[nodiscard]] static Checkpoint make_empty();

  // The open files, with the same indices as Checkpoint::files().
  [[nodiscard]] static const std::vector<std::shared_ptr<const SourceFile>>& files(
      const Checkpoint& checkpoint);

  // If the bytes that `view` needs are produced on demand (provided_tensors.h), produces them, and
  // keeps them while the result lives. The thread must hold no other such bytes. Errors of the
  // caller's function.
  [[nodiscard]] static Result<MemoryRuns::Held> hold(const Checkpoint& checkpoint,
                                                     const TensorView& view);

  // Appends the tensors of `others`, which are the data of models in memory. They are not keys of
  // the checkpoint, and their names need not be unique.
  static void append_existing(Checkpoint& checkpoint, const Checkpoint& others);
  // The index of the first tensor that was appended; tensors().size() if there are none.
  [[nodiscard]] static std::size_t first_existing(const Checkpoint& checkpoint);
  // Returns the index of appended tensor `number`; kInvalidArgument if there is no such tensor.
  [[nodiscard]] static Result<std::size_t> given_tensor(const Checkpoint& checkpoint,
                                                        std::uint64_t number);

  // Returns the quantized weight from which the floats of a storage are computed; null if there is
  // none.
  [[nodiscard]] static std::shared_ptr<const QuantizedMatrix> quantized(
      const Checkpoint& checkpoint, std::uint32_t storage);

  // Reads a whole matrix into rows that are `pitch` bytes apart; the bytes between the rows may
  // change.
  [[nodiscard]] static Status read_rows(const Checkpoint& checkpoint, const TensorView& view,
                                        std::uint64_t pitch, std::span<std::byte> out);
};

}  // namespace onnx_external
