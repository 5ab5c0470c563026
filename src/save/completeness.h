// Refuses to save a model that lacks weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the names that would have no value in the saved model: those that the mapping lists,
// slots that it does not fill, and names and tensors that are not slots (onnx/open_values.h).
[[nodiscard]] std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping);

// kNotFound with the list of names_left_open(), unless the mapping was made with Partial::kAllow.
// `source`: what has to be done for weights to have data, if it is not a checkpoint that has them.
[[nodiscard]] Status check_complete(const Model& model, const Mapping& mapping,
                                    std::string_view source = {});

}  // namespace onnx_external
