// Reads the declarations of tensors in a torch pickle, which are calls of functions that rebuild
// the tensors. The calls are not made.
//
// Sources: torch/_utils.py (rebuild functions and their arguments), torch/_tensor.py,
// torch/serialization.py (persistent ids); docs/formats.md lists them. All functions are pure and
// may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/pickle_bytes.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The encoding of real values as integers: value = (integer - zero point) * scale.
struct Quantizer {
  bool per_channel = false;
  double scale = 0;             // for the whole tensor
  std::int64_t zero_point = 0;  // for the whole tensor
  NodeId scales = 0;            // per channel: tensors with one value for each index of `axis`
  NodeId zero_points = 0;
  std::int64_t axis = 0;
};

enum class SparseLayout : std::uint8_t { kCoo, kCsr, kCsc, kBsr, kBsc };

// The parts of a sparse tensor; its shape is in the declaration.
struct SparseParts {
  SparseLayout layout = SparseLayout::kCoo;
  NodeId data = 0;        // the tuple of the parts, which identifies the tensor
  NodeId compressed = 0;  // not used for COO
  NodeId indices = 0;
  NodeId values = 0;
};

// A tensor as its rebuild call declares it. It has not been checked against a storage.
struct TensorDeclaration {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::int64_t> strides;  // in elements
  std::int64_t offset = 0;            // in elements
  bool conj = false;                  // torch's lazy bits
  bool neg = false;
  std::string storage_key;          // the record of the storage is data/<key>
  std::uint64_t storage_bytes = 0;  // size that the persistent id declares

  // Set for numpy values, whose bytes are in the pickle and not in a storage.
  std::optional<SpelledBytes> bytes;
  ByteOrder byte_order = ByteOrder::kLittle;  // byte order of `bytes`
  bool upper_halves = false;  // bfloat16 widened to float32: the lower half of each value is zero

  std::optional<Quantizer> quantizer;
  std::optional<SparseParts> sparse;  // if set, dtype, strides and storage are unknown
};

// Reads ('storage', class, key, location, numel) and sets dtype, storage_key and storage_bytes.
// Errors: kUnsupported for an unknown class; kCorrupt.
[[nodiscard]] Result<TensorDeclaration> declared_storage(const Pickle& pickle, NodeId id);

// Unwraps parameters and subclasses, and reads the rebuild call. Fails with kUnsupported for nested
// and meta tensors, wrapper subclasses, packed quantized tensors, and unknown element types; the
// message states the reason. Fails with kCorrupt for arguments of the wrong type. Requires:
// is_tensor(pickle, id) (torch_objects.h).
[[nodiscard]] Result<TensorDeclaration> declared_tensor(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
