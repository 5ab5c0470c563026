// In the listing of inspect-external, replaces the parts of quantized matrices (codes, scales, zero
// points) with the matrices that they form.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inspect/inspect.h"
#include "onnx/tensor_list.h"
#include "verify/model_file.h"

namespace onnx_external {

// Replaces tensors that, according to the manifest, are parts of the same matrix by the matrix, at
// the position of the first part. Parts stay in the list if one of them is missing or has a type or
// size that differs from the manifest, or if the manifest was written for another model.
//
// `inspection` has one tensor for each element of `listed`. Returns, for each tensor that
// `inspection` has after the call, the indices into `listed` of its parts.
[[nodiscard]] std::vector<std::vector<std::size_t>> join_parts(const ModelFile& model,
                                                               std::span<const ListedTensor> listed,
                                                               Inspection& inspection);

}  // namespace onnx_external
