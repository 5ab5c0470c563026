// Converts sparse tensors to dense ones. The conversion is done block by block while the tensor is
// read.
//
// Sources: torch/_utils.py (_rebuild_sparse_tensor); the invariants of torch.sparse_coo_tensor and
// torch.sparse_compressed_tensor in torch's documentation. Duplicate indices are handled as in
// Tensor.to_dense().
#pragma once

#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// One part of a sparse tensor: its type and shape, and a source of its contiguous bytes.
struct SparsePart {
  DType dtype = DType::kFloat32;
  Shape shape;
  ReadSource read;
};

struct SparseTensor {
  SparseLayout layout = SparseLayout::kCoo;
  Shape shape;
  SparsePart compressed;  // not used for COO
  SparsePart indices;
  SparsePart values;
};

// Returns a source of the dense tensor's bytes. Its element type is that of the values. This
// function reads and checks all indices; the values are read later, by the source. Each index needs
// 16 bytes of memory, and each value that must be summed needs 16 more. `budget` is charged before
// they are read. Fails with kCorrupt for indices that are out of range or out of order, and for
// parts with inconsistent shapes. Fails with kUnsupported if an element has several values whose
// type cannot be summed. Requires: contiguous_nbytes of the shape and of each part succeed.
[[nodiscard]] Result<ReadSource> make_dense(const SparseTensor& tensor, MemoryBudget& budget);

}  // namespace onnx_external
