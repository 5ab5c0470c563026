// Reads the elements of a tensor in row-major order, from any kind of storage.
#pragma once

#include <cstdint>
#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Returns whether elements of this type must be byte-swapped on this machine.
[[nodiscard]] bool needs_swap(const Storage& storage, DType dtype);

// Returns whether the view is a matrix for gather_word_rows().
[[nodiscard]] bool has_word_rows(const Storage& storage, const TensorView& view);

// A reader for one tensor. Immutable; read() may be called from several threads at once.
class ElementReader {
 public:
  // `read_storage` is a source of the storage's bytes, after decompression. `view` must outlive the
  // reader.
  ElementReader(const TensorView& view, const Storage& storage, ReadSource read_storage);

  // Reads the bytes [first, first + out.size()) of the row-major tensor. The range may begin and
  // end inside an element. For strided views, kGatherScratchBytes of memory are needed in addition
  // to `out`.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;

  // Reads all elements of a matrix into rows that are `pitch` bytes apart; the bytes between rows
  // are unspecified. `scratch` has kGatherScratchBytes bytes. Requires: two dimensions; out.size()
  // is `pitch` times the number of rows.
  [[nodiscard]] Status read_rows(std::uint64_t pitch, std::span<std::byte> out,
                                 std::byte* scratch) const;

  // Reads all words of a matrix as rows of codes. `scratch` has kWordRowsScratchBytes bytes.
  // Requires: has_word_rows(); out.size() is the size of the words.
  [[nodiscard]] Status read_word_rows(const WordRows& rows, std::span<std::byte> out,
                                      std::byte* scratch) const;

 private:
  void put_right(std::span<std::byte> out) const;
  [[nodiscard]] Status read_whole(std::uint64_t element, std::span<std::byte> out) const;

  const TensorView& view_;
  std::uint32_t unit_;
  bool swap_;
  bool contiguous_;
  ReadSource read_storage_;
  StridedView strided_;
};

}  // namespace onnx_external
