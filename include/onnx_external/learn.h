// Compares bytes to find out which tensor of the old checkpoint (the one that a graph was exported
// from) each tensor in the graph comes from, so that a new checkpoint can replace it.
//
// Exporters rename, transpose and merge weights, but leave their data in the graph. If that data
// equals a tensor of the old checkpoint bit by bit, it is replaced by the tensor of the same name
// in the new checkpoint. So the names that the exporter gave to the weights need not be known.
#pragma once

#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct LearnedMap {
  std::vector<MapEntry> map;  // slots that hold tensors of the old checkpoint, in slot order
  // Initializers and outputs of Constant nodes whose floating-point data matches no tensor. They
  // are constants of the graph and keep their data.
  std::vector<std::string> constants;
  // Names of tensors that are equal in both checkpoints and have no slot of their own, in the order
  // of the old checkpoint. Values in the graph that were computed from these tensors remain valid.
  std::vector<std::string> settled;
};

// If several nodes use a slot and it has at most this many elements, it may be a weight that the
// exporter merged with a constant of the same bytes.
inline constexpr std::uint64_t kMaxMergedElements = 1024;

// Pairs the graph's floating-point tensors (and integer tensors of several elements) with the
// tensors of `old` that have the same values, perhaps transposed or converted to the graph's type.
// If several tensors have equal bytes, the choice depends on their names and on the module whose
// node uses the slot. Slots in options.map and options.keep are skipped, and so are keys that match
// options.ignore or lie outside options.prefix.
//
// An ambiguous choice is an error only if it affects the result, that is, if the candidates differ
// between `old` and `fresh`. Each tensor is read once, or twice if it is equal in both checkpoints.
//
// Errors:
// - kNotFound if the graph contains nothing from `old`, or if `fresh` lacks tensors that are
//   needed.
// - kAmbiguous if the choice affects the result. For example, tensors are equal in `old` but not in
//   `fresh`, a matrix is symmetric only in `old`, or data may have been computed from tensors that
//   differ (a folded BatchNorm). The error lists all ambiguous tensors.
// - kIo, kCorrupt, kCancelled.
[[nodiscard]] Result<LearnedMap> learn_map(const Model& model, const Checkpoint& old,
                                           const Checkpoint& fresh, const MappingOptions& options,
                                           int threads = 0, const ProgressFn& progress = {});

// Returns `options` with the learned pairs added; entries of options.map take precedence.
[[nodiscard]] MappingOptions with_learned(MappingOptions options, const LearnedMap& learned);

}  // namespace onnx_external
