// Applies the rules for slots without a key of their own name: weights that are tied in the graph,
// and names that torch changed to make them unique.
#pragma once

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 5: fills an open slot whose name safetensors recorded as dropped, with the key that it kept.
[[nodiscard]] Status fill_metadata_ties(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 6: an open slot "mask.1" gets the key "mask" if something else in the graph has that name,
// because torch makes names unique in this way.
void fill_renamed(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 7: an open slot that nodes of another module use gets that module's key. Next, an open end
// of a tied embedding (the table that a Gather reads, or the matrix of the output projection) gets
// the key of the filled end, if the graph ties the two by equal data or by an Identity. Last, an
// embedding with one open slot for both ends gets the only left-over key of its type and shape, if
// that key is named after the other end. Passes errors of `evidence` on.
[[nodiscard]] Status fill_graph_ties(const KeyPrefix& key_prefix, const MappingEvidence& evidence,
                                     MappingTask& task);

}  // namespace onnx_external
