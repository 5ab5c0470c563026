// Finds a single name component by which keys (tensors of a checkpoint) differ from slots (values
// of a graph) in the middle of their names, such as the "module" that DataParallel inserts when it
// wraps a part of a model.
#pragma once

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// If most of the left-over keys would fill open slots once a component is removed from their names
// or inserted into them, adds this to the error, replaces its remedies by the --rename that does
// this, and returns true.
[[nodiscard]] bool add_inserted_component(const MappingTask& task, Refusal& refusal);

}  // namespace onnx_external
