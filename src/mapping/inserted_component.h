// Finds a component in the middle of names by which keys (tensors of a checkpoint) differ from
// slots (values of a graph), such as the "module" that DataParallel inserts when it wraps a part of
// a model.
#pragma once

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// Searches for a component that, if it is removed from names or inserted into names, makes most of
// the left-over keys fill open slots. If there is one, adds this to the error, replaces the
// remedies by the corresponding --rename, and returns true.
[[nodiscard]] bool add_inserted_component(const MappingTask& task, Refusal& refusal);

}  // namespace onnx_external
