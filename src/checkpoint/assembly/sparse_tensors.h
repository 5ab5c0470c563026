// Makes sparse tensors dense: zeros are filled in block by block while the tensor is read.
//
// Sources: torch/_utils.py (_rebuild_sparse_tensor), the invariants of torch.sparse_coo_tensor and
// torch.sparse_compressed_tensor in torch's documentation; duplicates are treated as by
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
  SparsePart compressed;  // not for COO
  SparsePart indices;
  SparsePart values;
};

// Makes a source of the dense tensor's bytes; its type is that of the values. All indices are read
// and checked now. They take 16 bytes each, and so do the bytes of values if some must be added up;
// both are charged to `budget` before they are read. Values are read when the source is. kCorrupt:
// indices out of range or out of order, parts whose shapes do not fit. kUnsupported: several values
// at one place, of a type that cannot be added here.
// Requires: contiguous_nbytes of the shape and of each part succeed.
[[nodiscard]] Result<ReadSource> make_dense(const SparseTensor& tensor, MemoryBudget& budget);

}  // namespace onnx_external
