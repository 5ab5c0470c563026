#include "tensor/recipe_json.h"

#include <limits>
#include <optional>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::string_view kKnownSteps =
    R"("transpose", {"permute": [DIM, ...]}, {"reshape": [SIZE, ...]}, {"slice": [DIM, START, STOP]} and "cast")";

std::optional<StepKind> step_called(std::string_view name, bool with_numbers) {
  for (const StepKind kind : {StepKind::kTranspose, StepKind::kPermute, StepKind::kReshape,
                              StepKind::kSlice, StepKind::kCast}) {
    if (name == step_name(kind) && takes_numbers(kind) == with_numbers) {
      return kind;
    }
  }
  return std::nullopt;
}

tl::unexpected<Error> unknown_step() {
  return corrupt("a step of its recipe is unknown; the known steps are " +
                 std::string(kKnownSteps));
}

Result<std::int64_t> number_of(const Json& json) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (json.uint() != nullptr && *json.uint() <= kMost) {
    return static_cast<std::int64_t>(*json.uint());
  }
  const auto* const negative = std::get_if<std::int64_t>(&json.value);
  return negative != nullptr
             ? Result<std::int64_t>(*negative)
             : corrupt("a step of its recipe contains a value that is not an integer");
}

Result<RecipeStep> parse_step(const Json& json) {
  if (json.string() != nullptr) {
    const auto kind = step_called(*json.string(), false);
    return kind ? Result<RecipeStep>(RecipeStep{*kind}) : unknown_step();
  }
  if (json.object() == nullptr || json.object()->size() != 1) {
    return unknown_step();
  }
  const auto& [name, numbers] = json.object()->front();
  const auto kind = step_called(name, true);
  if (!kind || numbers.array() == nullptr) {
    return unknown_step();
  }
  if (numbers.array()->size() > kMaxRecipeRank) {
    return corrupt("a step of its recipe has more than " + std::to_string(kMaxRecipeRank) +
                   " numbers");
  }
  RecipeStep step{*kind};
  for (const Json& number : *numbers.array()) {
    TRY_ASSIGN(const auto value, number_of(number));
    step.numbers.push_back(value);
  }
  return step;
}

}  // namespace

Result<Recipe> parse_recipe(const Json& steps) {
  if (steps.array() == nullptr || steps.array()->size() > kMaxRecipeSteps + 1) {
    return corrupt("a recipe is a list of at most " + std::to_string(kMaxRecipeSteps) +
                   " steps and a cast");
  }
  Recipe recipe;
  for (const Json& json : *steps.array()) {
    TRY_ASSIGN(auto step, parse_step(json));
    recipe.push_back(std::move(step));
  }
  return recipe;
}

std::string recipe_json(const Recipe& recipe) {
  std::string text = "[";
  for (const RecipeStep& step : recipe) {
    text += text.size() > 1 ? ", " : "";
    const std::string name = json_quote(step_name(step.kind));
    text += takes_numbers(step.kind) ? "{" + name + ": " + shape_text(step.numbers) + "}" : name;
  }
  return text + "]";
}

}  // namespace onnx_external
