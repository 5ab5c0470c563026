// Replaces the nodes that read a matrix as floats by nodes that read its codes.
#pragma once

#include "onnx/matrix_choice.h"
#include "onnx/model_edits.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Makes the nodes of the chosen matrices read the tensors of the plan, imports the domain of their
// operators, and removes the weights, the nodes in between, and their constants. A replaced node
// keeps its position, name, output, doc_string and metadata. The caller attaches the tensors
// themselves (attach(), without a slot), and must not attach, relocate or externalize what is
// removed. Requires: the plan was made for this model.
[[nodiscard]] Status replace_matrices(const Model& model, const MatrixPlan& plan,
                                      ModelEdits& edits);

}  // namespace onnx_external
