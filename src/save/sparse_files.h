// Finds the holes (ranges of zeros without disk blocks) of the checkpoint's files that the data
// files of a plan can also have.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"

namespace onnx_external {

// Fills in PlannedFile::hole_bytes. Costs one system call for each file of the checkpoint, and one
// for each hole.
void note_holes(const Checkpoint& checkpoint, SavePlan& plan);

}  // namespace onnx_external
