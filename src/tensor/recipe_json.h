// Reads and writes recipes in map files and manifests: lists of steps, "NAME" or {"NAME": [NUMBER,
// ...]}.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// kCorrupt if `steps` is not a list, is longer than kMaxRecipeSteps and a cast, or has an unknown
// step, one with other members, or one without its numbers.
[[nodiscard]] Result<Recipe> parse_recipe(const Json& steps);

// ["transpose", {"slice": [0, 0, 128]}]
[[nodiscard]] std::string recipe_json(const Recipe& recipe);

}  // namespace onnx_external
