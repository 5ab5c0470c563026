// The models that the tensors of a plan come from: one, or those of a set.
#pragma once

#include <span>

#include "onnx_external/model.h"
#include "onnx_external/plan.h"

namespace onnx_external {

// The models must outlive it. Converts implicitly from a single model.
class SourceModels {
 public:
  SourceModels(const Model& model) : models_(&model, 1) {}
  SourceModels(std::span<const Model> models) : models_(models) {}

  [[nodiscard]] const Model& of(const PlannedTensor& tensor) const {
    return models_[tensor.model_index];
  }
  [[nodiscard]] std::span<const Model> all() const { return models_; }

 private:
  std::span<const Model> models_;
};

}  // namespace onnx_external
