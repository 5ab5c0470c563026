// Holds the view that results from applying a recipe to a tensor. In most cases the recipe is
// empty, and the result is the tensor's own view, which is not copied.
#pragma once

#include <optional>

#include "onnx_external/recipe.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// A view of a tensor, which must outlive this object. Requires: apply_recipe(recipe, tensor)
// succeeds.
class DerivedView {
 public:
  DerivedView(const TensorView& tensor, const Recipe& recipe) : view_(&tensor) {
    if (!recipe.empty()) {
      view_ = &made_.emplace(*apply_recipe(recipe, tensor));
    }
  }
  DerivedView(const DerivedView&) = delete;
  DerivedView& operator=(const DerivedView&) = delete;

  [[nodiscard]] const TensorView& operator*() const { return *view_; }
  [[nodiscard]] const TensorView* operator->() const { return view_; }

 private:
  std::optional<TensorView> made_;
  const TensorView* view_;
};

}  // namespace onnx_external
