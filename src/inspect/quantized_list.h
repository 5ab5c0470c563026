// Shows the parts of a quantized matrix as the one tensor that they represent.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inspect/inspect.h"
#include "onnx/tensor_list.h"
#include "verify/model_file.h"

namespace onnx_external {

// Replaces tensors that the model's manifest calls parts of one matrix by the matrix, in the place
// of the first of them. Leaves them unchanged if a part is missing or has another type or size than
// the manifest says, or if the manifest was written for another model.
//
// `inspection`: with one tensor for each of `listed`. The result has, for each tensor left, the
// indices into `listed` of the tensors whose bytes it consists of.
[[nodiscard]] std::vector<std::vector<std::size_t>> join_parts(const ModelFile& model,
                                                               std::span<const ListedTensor> listed,
                                                               Inspection& inspection);

}  // namespace onnx_external
