// Limits how much the loaded model's own external data may grow when it is copied.
#pragma once

#include <cstdint>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

// Many tensors of a small model may refer to one range, and data files may have holes. So the bytes
// to copy may be at most `max_expand` times the bytes that the files store, or
// kAlwaysExpandedBytes, whichever is more. kUnsupported beyond that; errors of opening the files.
[[nodiscard]] Status check_expansion(const SavePlan& plan, const SourceModels& models,
                                     std::uint64_t max_expand);

}  // namespace onnx_external
