#include "onnx_external/recipe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/try.h"
#include "tensor/axes.h"

namespace onnx_external {
namespace {

struct StepName {
  std::string_view name;
  std::string_view done;
};
constexpr std::array<StepName, 5> kStepNames{{{"transpose", "transposed"},
                                              {"permute", "permuted"},
                                              {"reshape", "reshaped"},
                                              {"slice", "sliced"},
                                              {"cast", "cast"}}};
static_assert(kStepNames.size() == static_cast<std::size_t>(StepKind::kCast) + 1);

constexpr std::size_t kSliceNumbers = 3;

std::string text_of(const Recipe& recipe, std::string_view StepName::*name) {
  std::string text;
  for (const RecipeStep& step : recipe) {
    text += text.empty() ? "" : ", ";
    text += kStepNames[static_cast<std::size_t>(step.kind)].*name;
    text += takes_numbers(step.kind) ? " " + shape_text(step.numbers) : "";
  }
  return text;
}

bool moves_elements(const Recipe& recipe) {
  return !recipe.empty() && recipe.front().kind != StepKind::kCast;
}

// Returns the error in the numbers of a step that is an error for any tensor; or "".
std::string_view wrong_numbers(const RecipeStep& step) {
  const std::vector<std::int64_t>& numbers = step.numbers;
  switch (step.kind) {
    case StepKind::kSlice:
      return numbers.size() == kSliceNumbers ? "" : "it needs a dimension, a start and a stop";
    case StepKind::kReshape:
      if (std::count(numbers.begin(), numbers.end(), -1) > 1 ||
          std::any_of(numbers.begin(), numbers.end(), [](std::int64_t n) { return n < -1; })) {
        return "its sizes must not be negative, except for one -1";
      }
      [[fallthrough]];
    case StepKind::kPermute:
      return numbers.size() <= kMaxRecipeRank ? "" : "a tensor can have at most 64 dimensions";
    case StepKind::kTranspose:
    case StepKind::kCast:
      break;
  }
  return numbers.empty() ? "" : "it takes no numbers";
}

Status check_steps(const Recipe& recipe) {
  if (recipe.size() - (ends_with_cast(recipe) ? 1 : 0) > kMaxRecipeSteps) {
    return fail(ErrorCode::kInvalidArgument,
                "a recipe of more than " + std::to_string(kMaxRecipeSteps) + " steps");
  }
  for (const RecipeStep& step : recipe) {
    if (step.kind == StepKind::kCast && &step != &recipe.back()) {
      return fail(ErrorCode::kInvalidArgument, "a cast must be the last step of a recipe");
    }
    if (const std::string_view wrong = wrong_numbers(step); !wrong.empty()) {
      return fail(ErrorCode::kInvalidArgument, recipe_text({step}) + ": " + std::string(wrong));
    }
  }
  return {};
}

Status transpose(Axes& axes) {
  constexpr std::array<std::int64_t, 2> kTurned{1, 0};
  const std::size_t rank = axes.shape().size();
  return rank == 2
             ? axes.permute(kTurned)
             : fail(ErrorCode::kMismatch, "only a matrix can be transposed, but this tensor has " +
                                              std::to_string(rank) + " dimensions");
}

Status apply_step(const RecipeStep& step, Axes& axes) {
  const std::vector<std::int64_t>& numbers = step.numbers;
  switch (step.kind) {
    case StepKind::kTranspose:
      return transpose(axes);
    case StepKind::kPermute:
      return axes.permute(numbers);
    case StepKind::kReshape:
      return axes.reshape(numbers);
    case StepKind::kSlice:
      return axes.slice(numbers[0], numbers[1], numbers[2]);
    case StepKind::kCast:
      break;
  }
  return {};
}

Status apply_steps(const Recipe& recipe, Axes& axes) {
  for (const RecipeStep& step : recipe) {
    if (Status applied = apply_step(step, axes); !applied) {
      return step.kind == StepKind::kTranspose
                 ? std::move(applied)
                 : fail_in(recipe_text({step}), std::move(applied).error());
    }
  }
  return {};
}

}  // namespace

std::string_view step_name(StepKind kind) {
  return kStepNames[static_cast<std::size_t>(kind)].name;
}

bool takes_numbers(StepKind kind) {
  return kind != StepKind::kTranspose && kind != StepKind::kCast;
}

std::string recipe_text(const Recipe& recipe) {
  return text_of(recipe, &StepName::name);
}

std::string recipe_done_text(const Recipe& recipe) {
  return text_of(recipe, &StepName::done);
}

bool transposes(const Recipe& recipe) {
  return std::count(recipe.begin(), recipe.end(), RecipeStep::transpose()) % 2 != 0;
}

bool ends_with_cast(const Recipe& recipe) {
  return !recipe.empty() && recipe.back().kind == StepKind::kCast;
}

Recipe with_cast(Recipe recipe, bool cast) {
  if (cast && !ends_with_cast(recipe)) {
    recipe.push_back(RecipeStep::cast());
  } else if (!cast && ends_with_cast(recipe)) {
    recipe.pop_back();
  }
  return recipe;
}

Recipe turned_once_more(Recipe recipe) {
  const bool cast = ends_with_cast(recipe);
  recipe = with_cast(std::move(recipe), false);
  recipe.push_back(RecipeStep::transpose());
  return with_cast(std::move(recipe), cast);
}

Result<Shape> apply_recipe(const Recipe& recipe, const Shape& shape) {
  TRY(check_steps(recipe));
  if (!moves_elements(recipe)) {
    return shape;
  }
  TRY(element_count(shape));
  Axes axes(shape, contiguous_strides(shape));
  TRY(apply_steps(recipe, axes));
  return axes.shape();
}

Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view) {
  TRY(check_steps(recipe));
  if (!moves_elements(recipe)) {
    return view;
  }
  if (shares_byte(view.dtype)) {
    return fail(
        ErrorCode::kMismatch,
        "several of its values share a byte, so it cannot be transposed, sliced or reshaped");
  }
  TRY_ASSIGN(const auto count, element_count(view.shape));
  Axes axes(view.shape, view.strides);
  TRY(apply_steps(recipe, axes));
  view.storage_offset += count == 0 ? 0 : axes.offset() * byte_size(view.dtype);
  view.shape.clear();
  view.strides.clear();
  for (const StridedDim& dim : axes.dims()) {
    view.shape.push_back(static_cast<std::int64_t>(dim.size));
    view.strides.push_back(static_cast<std::int64_t>(dim.stride));
  }
  if (view.shape.size() > kMaxRecipeRank) {
    return fail(ErrorCode::kMismatch, "it splits the tensor into too many dimensions");
  }
  return view;
}

}  // namespace onnx_external
