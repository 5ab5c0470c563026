// Finds the one component by which names of keys and of slots differ in the middle, such as the
// "module" that DataParallel puts around a part of a model.
#pragma once

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// If most of the keys that are left over would fill open slots once a component is taken out of, or
// put into, their names, adds this to the refusal, and replaces its remedies by the --rename that
// does it. Returns whether it did.
[[nodiscard]] bool add_inserted_component(const MappingTask& task, Refusal& refusal);

}  // namespace onnx_external
