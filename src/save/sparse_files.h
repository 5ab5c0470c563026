// Which data files of a plan get holes where the checkpoint has them.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"

namespace onnx_external {

struct SparseFiles {
  std::vector<bool> files;       // index = SavePlan::files; empty: none
  std::uint64_t hole_bytes = 0;  // that need no room on the disk
};

// Costs a system call a file of the checkpoint where that has no holes, else one a hole.
[[nodiscard]] SparseFiles find_sparse_files(const SavePlan& plan, const Checkpoint& checkpoint);

}  // namespace onnx_external
