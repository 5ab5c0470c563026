// Makes inspect-external list each quantized matrix of a model as a single tensor, instead of its
// parts (codes, scales, zero points).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inspect/inspect.h"
#include "onnx/tensor_list.h"
#include "verify/model_file.h"

namespace onnx_external {

// Finds tensors that, according to the model's manifest, are parts of the same matrix, and replaces
// them by the matrix, at the position of the first part. Parts are not replaced if one of them is
// missing or has a type or size that differs from the manifest, or if the manifest was written for
// another model.
//
// `inspection` has one tensor for each element of `listed`. Returns, for each tensor that is left
// in it, the indices into `listed` of the tensors that it consists of.
[[nodiscard]] std::vector<std::vector<std::size_t>> join_parts(const ModelFile& model,
                                                               std::span<const ListedTensor> listed,
                                                               Inspection& inspection);

}  // namespace onnx_external
