// Makes sparse tensors dense. The zeros are filled in block by block while the tensor is read.
//
// Sources: torch/_utils.py (_rebuild_sparse_tensor); the invariants of torch.sparse_coo_tensor and
// torch.sparse_compressed_tensor in torch's documentation. Duplicates are treated as
// Tensor.to_dense() treats them.
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
  SparsePart compressed;  // not for COO
  SparsePart indices;
  SparsePart values;
};

// Returns a source of the dense tensor's bytes, which have the type of the values. All indices are
// read and checked now, and take 16 bytes each; if some values must be added up, they also take 16
// bytes each. Both are charged to `budget` before they are read. The values themselves are read
// through the source later. kCorrupt: indices out of range or out of order, or parts whose shapes
// do not fit together. kUnsupported: several values for one element, of a type that cannot be added
// here. Requires: contiguous_nbytes of the shape and of each part succeed.
[[nodiscard]] Result<ReadSource> make_dense(const SparseTensor& tensor, MemoryBudget& budget);

}  // namespace onnx_external
