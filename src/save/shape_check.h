// Refuses weights that contradict each other (onnx/shape_conflict.h). The mapping compares each
// with what the graph says of it alone.
#pragma once

#include <cstdint>
#include <span>

#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// kMismatch if the tensors planned for the model make a node of it impossible. Does nothing if the
// graph knew the type and shape of each of them.
[[nodiscard]] Status check_shapes(const Model& model, std::uint32_t model_index,
                                  std::span<const PlannedTensor> tensors);

// The same of a model whose initializers are all there.
[[nodiscard]] Status check_shapes(const Model& model);

}  // namespace onnx_external
