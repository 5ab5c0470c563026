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
#include "tensor/word_rows.h"

namespace onnx_external {

struct QuantizedMatrix;  // quantized/quantized_matrix.h

struct CheckpointAccess {
  using Contents = Checkpoint::Contents;  // file_contents.h

  [[nodiscard]] static Checkpoint make(std::unique_ptr<Contents> contents);
  [[nodiscard]] static const Contents& contents(const Checkpoint& checkpoint) {
    return *checkpoint.contents_;
  }
  [[nodiscard]] static Contents& contents(Checkpoint& checkpoint) { return *checkpoint.contents_; }
  // Creates a checkpoint without tensors.
  [[nodiscard]] static Checkpoint make_empty();

  // Returns the open files, with the same indices as Checkpoint::files().
  [[nodiscard]] static const std::vector<std::shared_ptr<const SourceFile>>& files(
      const Checkpoint& checkpoint);

  // If the bytes of `view` are produced on demand (provided_tensors.h), produces them and keeps
  // them in memory during the lifetime of the result. Errors are those of the function that
  // produces them. Requires: the calling thread holds no other such bytes.
  [[nodiscard]] static Result<MemoryRuns::Held> hold(const Checkpoint& checkpoint,
                                                     const TensorView& view);

  // Appends the tensors of `others`, which are the data of models in memory. The appended tensors
  // are not keys of the checkpoint, and their names need not be unique.
  static void append_existing(Checkpoint& checkpoint, const Checkpoint& others);
  // Returns the index of the first tensor that append_existing() added, or tensors().size() if
  // there is none.
  [[nodiscard]] static std::size_t first_existing(const Checkpoint& checkpoint);
  // Returns the index of the appended tensor with this number. Fails with kInvalidArgument if there
  // is no such tensor.
  [[nodiscard]] static Result<std::size_t> given_tensor(const Checkpoint& checkpoint,
                                                        std::uint64_t number);

  // Returns the quantized weight from which the floats of a storage are computed, or null if there
  // is none.
  [[nodiscard]] static std::shared_ptr<const QuantizedMatrix> quantized(
      const Checkpoint& checkpoint, std::uint32_t storage);

  // Reads a whole matrix into rows that are `pitch` bytes apart. The bytes between the rows are
  // unspecified. `scratch` has kGatherScratchBytes bytes.
  [[nodiscard]] static Status read_rows(const Checkpoint& checkpoint, const TensorView& view,
                                        std::uint64_t pitch, std::span<std::byte> out,
                                        std::byte* scratch);
  // Reads a whole matrix as by ElementReader::read_word_rows().
  [[nodiscard]] static Status read_word_rows(const Checkpoint& checkpoint, const TensorView& view,
                                             const WordRows& rows, std::span<std::byte> out,
                                             std::byte* scratch);
};

}  // namespace onnx_external
