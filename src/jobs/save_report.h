// Converts the verdicts of a mapping to the lists of a report.
#pragma once

#include <string>
#include <vector>

#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// SaveReport::keys.
[[nodiscard]] std::vector<LeftKey> reported_keys(const MappingKeys& keys, const Mapping& mapping);

// SavedModel::left. `by_option`: SavedModel::kept_by_option.
[[nodiscard]] std::vector<LeftName> reported_names(const Model& model, const Mapping& mapping,
                                                   const std::vector<std::string>& by_option);

}  // namespace onnx_external
