// Pairs by bytes: what the data in a graph is, learned from the checkpoint that it was exported
// from.
//
// Exporters rename, transpose and merge weights, and leave their data in the graph. Where that
// data is a tensor of the old checkpoint, bit by bit, the tensor of that name in a new one belongs
// there; no name that an exporter invented is guessed at.
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
  std::vector<MapEntry> map;  // slots that hold tensors of the old checkpoint; by slot index
  // Initializers that hold floats of no tensor, and outputs of Constant nodes that do: constants of
  // the graph, which keep their data.
  std::vector<std::string> constants;
  // Tensors that are the same in both checkpoints and have no slot of their own: whatever the graph
  // holds that was made from them stays right. In the order of the old checkpoint.
  std::vector<std::string> settled;
};

// A slot of at most so many elements that several nodes use may be a weight merged with a constant
// of the same bytes.
inline constexpr std::uint64_t kMaxMergedElements = 1024;

// Pairs the floating-point data that the graph holds (and integers of several elements) with the
// tensors of `old`: equal, transposed, or converted to the graph's type. Among tensors of equal
// bytes names decide, and the module whose node uses the slot. `options`: slots in map, ties and
// keep are not looked at, nor are keys under `ignore` or outside `prefix`.
//
// What bytes do not decide is only refused where it matters: where the tensors in question differ
// between `old` and `fresh`.
// kNotFound: the graph holds nothing of `old`, or `fresh` lacks tensors that are needed.
// kAmbiguous: equal bytes in `old` but not in `fresh`; a symmetric matrix that is none in `fresh`;
// data that may have been computed from tensors which differ (a folded BatchNorm), ...: all listed.
// Also kIo, kCorrupt, kCancelled. Reads each tensor once, those with equal bytes in both twice.
[[nodiscard]] Result<LearnedMap> learn_map(const Model& model, const Checkpoint& old,
                                           const Checkpoint& fresh, const MappingOptions& options,
                                           int threads = 0, const ProgressFn& progress = {});

// The options with what was learned; entries of options.map and ties win over learned ones.
[[nodiscard]] MappingOptions with_learned(MappingOptions options, const LearnedMap& learned);

}  // namespace onnx_external
