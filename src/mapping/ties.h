// Rules for slots whose name no key has: weights that are tied in the graph, and names that torch
// changed to make them unique.
#pragma once

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 5: open slots whose name safetensors recorded as dropped in favour of a kept key.
[[nodiscard]] Status fill_metadata_ties(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 6: an open slot "mask.1" gets the key "mask" if something else in the graph has that name,
// because torch makes names unique in this way.
void fill_renamed(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 7: an open slot that nodes of another module use gets that module's key; then the open end
// of an embedding that the graph ties to a filled one (by equal data or by an Identity), and a tied
// embedding for which the only left-over key of its form is named after the other end. Errors of
// the evidence are passed on.
[[nodiscard]] Status fill_graph_ties(const KeyPrefix& key_prefix, const MappingEvidence& evidence,
                                     MappingTask& task);

}  // namespace onnx_external
