// Finds the data files of a plan that can be written with the holes (ranges of zeros without disk
// blocks) of the checkpoint's files.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"

namespace onnx_external {

struct SparseFiles {
  std::vector<bool> files;       // index = SavePlan::files; empty: none
  std::uint64_t hole_bytes = 0;  // bytes in holes, which take no disk space
};

// Costs one system call for each file of the checkpoint, and one for each hole.
[[nodiscard]] SparseFiles find_sparse_files(const SavePlan& plan, const Checkpoint& checkpoint);

}  // namespace onnx_external
