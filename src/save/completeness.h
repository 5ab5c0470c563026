// Refuses to save a model that lacks weights.
#pragma once

#include <string>
#include <vector>

#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The names of everything that stays without a value when `mapping` has been carried out: what the
// mapping says, slots that it does not fill, and what is no slot (onnx/open_places.h).
[[nodiscard]] std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping);

// kNotFound, with a list of these, unless the mapping was made with Partial::kAllow.
[[nodiscard]] Status check_complete(const Model& model, const Mapping& mapping);

}  // namespace onnx_external
