// Where the parts of a plan go: the names of data files, and the offsets in them.
#pragma once

#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills in files, the places of all parts, bytes and oversized. The parts must stand in the order
// in which they will be laid out. Pure. Errors as make_plan().
[[nodiscard]] Status lay_out(SavePlan& plan, const PlanOptions& options);

}  // namespace onnx_external
