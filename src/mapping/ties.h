// Applies the mapping rules for slots (values of a graph) without a key (a tensor of a checkpoint)
// of the same name: weights that are tied to other weights, and names that torch changed to make
// them unique.
#pragma once

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 5: if safetensors recorded that it dropped the name of an open slot, fills the slot with the
// key that safetensors kept.
[[nodiscard]] Status fill_metadata_ties(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 6: an open slot "mask.1" gets the key "mask" if something else in the graph has that name,
// because torch makes names unique in this way.
void fill_renamed(const KeyPrefix& key_prefix, MappingTask& task);

// Rule 7: an open slot that nodes of another module use gets that module's key. Next, if one end of
// a tied embedding (the table that a Gather reads, or the matrix of the output projection) is
// filled, the open end gets the same key, if the graph ties the two by equal data or by an
// Identity. Last, an embedding with one open slot for both ends gets the only left-over key of its
// type and shape, if that key has the name of the other end. Passes errors of `evidence` on.
[[nodiscard]] Status fill_graph_ties(const KeyPrefix& key_prefix, const MappingEvidence& evidence,
                                     MappingTask& task);

}  // namespace onnx_external
