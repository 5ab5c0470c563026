// Checks that the options of a save are compatible.
#pragma once

#include "onnx_external/mapping.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// kInvalidArgument for an option that would have no effect, or would contradict the layout or
// another option. Every kind of save calls it.
[[nodiscard]] Status check_option_rules(const PlanOptions& plan, const WriteOptions& write,
                                        Casts casts);

}  // namespace onnx_external
