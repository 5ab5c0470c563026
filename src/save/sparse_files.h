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

// Costs one system call for each file of the checkpoint, and one for each hole.
[[nodiscard]] SparseFiles find_sparse_files(const SavePlan& plan, const Checkpoint& checkpoint);

}  // namespace onnx_external
