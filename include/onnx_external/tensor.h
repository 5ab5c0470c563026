// Describes tensors without their data: name, element type, shape and strides.
//
// Sizes and offsets are in bytes unless the name says otherwise, and shapes and strides are in
// elements. All types are plain values. All functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The dimensions of a tensor, outermost first; empty for a scalar. In tensors that a reader
// returns, no dimension is negative.
using Shape = std::vector<std::int64_t>;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// A tensor as a view of a storage (a run of bytes that several tensors may share).
struct TensorView : TensorInfo {
  std::vector<std::int64_t> strides;  // in elements, one per dimension, >= 0 (0 = expanded)
  std::uint32_t storage = 0;          // index into Checkpoint::storages()
  std::uint64_t storage_offset = 0;   // bytes from the start of the storage to element 0

  // torch's lazy bits. If set, the value is the conjugate or the negative of what the storage
  // holds.
  bool conj = false;
  bool neg = false;
};

// Returns the number of elements. Fails with kCorrupt for a negative dimension or more than 2^63-1
// elements.
[[nodiscard]] Result<std::uint64_t> element_count(std::span<const std::int64_t> shape);

// Returns the size in bytes of the contiguous tensor. Fails with kCorrupt for a negative dimension
// and for more than 2^63-1 elements or bytes.
[[nodiscard]] Result<std::uint64_t> contiguous_nbytes(DType dtype,
                                                      std::span<const std::int64_t> shape);

// Returns the row-major strides of a shape, in elements. Requires: element_count(shape) succeeds.
[[nodiscard]] std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> shape);

// Returns whether the elements are stored in row-major order without gaps. As in torch, strides of
// dimensions of size 1 and all strides of an empty tensor are ignored.
[[nodiscard]] bool is_contiguous(std::span<const std::int64_t> shape,
                                 std::span<const std::int64_t> strides);

// Returns the number of bytes from the start of element 0 to the end of the furthest element; 0 for
// an empty tensor. Fails with kCorrupt on overflow, for a negative stride, and if the ranks differ.
[[nodiscard]] Result<std::uint64_t> extent_bytes(DType dtype, std::span<const std::int64_t> shape,
                                                 std::span<const std::int64_t> strides);

// Returns the shape that the tensor has in ONNX. For kFloat4E2M1FnX2 the last dimension is doubled;
// all other types keep their shape. Fails with kUnsupported for a 0-d kFloat4E2M1FnX2, which has no
// dimension to double.
[[nodiscard]] Result<Shape> onnx_shape(DType dtype, std::span<const std::int64_t> shape);

// Returns the size in bytes of an ONNX tensor with the given TensorProto data type; the size of a
// tensor of a sub-byte type is rounded up to whole bytes. Errors: kUnsupported for STRING and
// unknown types, kCorrupt as for element_count.
[[nodiscard]] Result<std::uint64_t> onnx_nbytes(std::int32_t data_type,
                                                std::span<const std::int64_t> dims);

// Returns a shape as text: "[2, 3]", or "[]" for a scalar.
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace onnx_external
