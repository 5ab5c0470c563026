// Reads the elements of one tensor in row-major order, from any form of storage.
#pragma once

#include <cstdint>
#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// True if elements of this type must be byte-swapped for this machine.
[[nodiscard]] bool needs_swap(const Storage& storage, DType dtype);

// Immutable; read() may be called from several threads at once.
class ElementReader {
 public:
  // `read_storage` reads bytes of the (uncompressed) storage. `view` must outlive the reader.
  ElementReader(const TensorView& view, const Storage& storage, ReadSource read_storage);

  // Bytes [first, first + out.size()) of the row-major tensor; both ends may cut elements. Besides
  // `out`, strided views need kGatherScratchBytes of memory.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;

  // Reads all elements of a matrix into rows that are `pitch` bytes apart; the bytes between rows
  // are unspecified. Requires: two dimensions; out.size() is `pitch` times the number of rows.
  [[nodiscard]] Status read_rows(std::uint64_t pitch, std::span<std::byte> out) const;

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
