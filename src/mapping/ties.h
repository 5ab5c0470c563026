// Applies the mapping rules for slots (values of a graph) whose names differ from their keys
// (tensors of a checkpoint), because the weight is tied to another weight, or because torch changed
// the name to make it unique.
#pragma once

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Applies rule 5: if safetensors recorded that it dropped the name of an open slot, fills the slot
// with the key that safetensors kept.
[[nodiscard]] Status fill_metadata_ties(const KeyPrefix& key_prefix, MappingTask& task);

// Applies rule 6: an open slot "mask.1" gets the key "mask" if another value in the graph has that
// name, because torch appends a number to make names unique.
void fill_renamed(const KeyPrefix& key_prefix, MappingTask& task);

// Applies rule 7. First, an open slot that nodes of another module use gets that module's key.
// Second, if one end of a tied embedding (the table that a Gather reads, or the matrix of the
// output projection) is filled, the open end gets the same key, provided that the graph ties the
// two by equal data or by an Identity node. Third, an embedding with one open slot for both ends
// gets the only left-over key of its type and shape, if that key has the name of the other end.
// Errors are those of `evidence`.
[[nodiscard]] Status fill_graph_ties(const KeyPrefix& key_prefix, const MappingEvidence& evidence,
                                     MappingTask& task);

}  // namespace onnx_external
