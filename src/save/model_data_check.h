// Looks for zeros that a broken download left in the models' own data.
#pragma once

#include <string>
#include <vector>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

// Checks the files of all ranges that are copied or linked from models' external data, as
// check_is_not_missing() does, whose notes it returns. Errors of opening the files.
[[nodiscard]] Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                                const SourceModels& models);

}  // namespace onnx_external
