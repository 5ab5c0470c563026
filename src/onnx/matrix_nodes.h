// Replaces the nodes that read floats of a matrix by nodes that read its codes.
#pragma once

#include "onnx/matrix_choice.h"
#include "onnx/model_edits.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Makes the nodes of the chosen matrices read the tensors of the plan, imports their domain, and
// removes the weights, the nodes between, and their constants. A node keeps its place, name,
// output, doc_string and metadata. The caller attaches the tensors themselves (attach(), without a
// slot), and does not attach, relocate or externalize what is removed. Requires: the plan is of
// this model.
[[nodiscard]] Status replace_matrices(const Model& model, const MatrixPlan& plan,
                                      ModelEdits& edits);

}  // namespace onnx_external
