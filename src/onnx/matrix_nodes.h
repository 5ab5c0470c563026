// Replaces the nodes that read a matrix as floats by nodes that read its codes.
#pragma once

#include "onnx/matrix_choice.h"
#include "onnx/model_edits.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Replaces the nodes that read chosen matrices by nodes that read the tensors of the plan, and
// imports the domain of their operators. Removes the weights, the nodes between the weights and the
// replaced nodes, and the constants of these nodes. A replaced node keeps its position, name,
// output, doc_string and metadata. The caller attaches the tensors (attach(), without a slot), and
// must not attach, relocate or externalize removed tensors. Requires: the plan was made for this
// model.
[[nodiscard]] Status replace_matrices(const Model& model, const MatrixPlan& plan,
                                      ModelEdits& edits);

}  // namespace onnx_external
