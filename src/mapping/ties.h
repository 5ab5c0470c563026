// Rules for slots whose own names no key has: weights that are tied in the graph, and names that
// torch changed because something else was called so.
#pragma once

#include "mapping/alignment.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 5: open slots whose name safetensors recorded as dropped in favour of a kept key.
[[nodiscard]] Status fill_metadata_ties(const Alignment& alignment, MappingTask& task);

// Rule 6: an open slot that nodes of another module use gets that module's key; then the open end
// of an embedding that the graph ties to a filled one (by equal data, by an Identity), and a tied
// embedding whose only left-over key of its form is called after the other end. Fails as the
// evidence does.
[[nodiscard]] Status fill_graph_ties(const Alignment& alignment, const MappingEvidence& evidence,
                                     MappingTask& task);

// Rule 7: an open slot "mask.1" gets the key "mask" when the graph has something else of that name:
// torch makes names unique so.
void fill_renamed(const Alignment& alignment, MappingTask& task);

}  // namespace onnx_external
