// Finds a single component in the middle of names by which keys differ from slots, such as the
// "module" that DataParallel inserts when it wraps a part of a model.
#pragma once

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// If most of the left-over keys would fill open slots once a component is removed from their names
// or inserted into them, adds this to the refusal, replaces its remedies by the --rename that does
// this, and returns true.
[[nodiscard]] bool add_inserted_component(const MappingTask& task, Refusal& refusal);

}  // namespace onnx_external
