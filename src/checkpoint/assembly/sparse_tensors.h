// Sparse tensors made dense: zeros written out, block by block, as they are read.
//
// Sources: torch/_utils.py (_rebuild_sparse_tensor), the invariants of torch.sparse_coo_tensor and
// torch.sparse_compressed_tensor in torch's documentation; duplicates as Tensor.to_dense() has
// them.
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
  SparsePart compressed;  // not of COO
  SparsePart indices;
  SparsePart values;
};

// A source of the bytes of the dense tensor, whose type is that of the values. Reads and checks all
// indices at once; keeps 16 bytes for each of them, taken from `budget` before they are read. So
// are the bytes of values where some are added up.
// Values are read when the source is. kCorrupt: indices out of range or out of order, parts whose
// shapes do not fit; kUnsupported: values at one place of a type that is not added up here.
// Requires: contiguous_nbytes of the shape and of each part succeed.
[[nodiscard]] Result<ReadSource> make_dense(const SparseTensor& tensor, MemoryBudget& budget);

}  // namespace onnx_external
