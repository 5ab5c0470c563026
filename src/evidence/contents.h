// Finds, for learn_map(), the tensors of a checkpoint whose bytes equal those of tensors in a
// graph, directly or transposed. Every tensor that could match is read once.
#pragma once

#include <cstdint>
#include <vector>

#include "evidence/graph_tensors.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct ContentSearch {
  const Model& model;
  const std::vector<GraphTensor>& graph_tensors;
  const std::vector<bool>& wanted;  // for each of `graph_tensors`: true if it is to be matched
  const Checkpoint& checkpoint;
  const std::vector<bool>& usable;  // for each of its tensors: true if it may match
  const Checkpoint& own;            // contains the model's external data that is in memory
  int threads = 0;
  const ProgressFn& progress;
};

// The keys (tensors of the checkpoint) whose bytes equal those of a graph tensor, directly or
// transposed. Graph tensors with equal bytes share one entry. Keys of a different floating-point
// type are converted first.
struct Content {
  bool uniform = false;               // all elements are equal
  std::vector<std::uint32_t> keys;    // keys of any shape, by ascending index
  std::vector<std::uint32_t> turned;  // matrices whose transpose has these bytes
  std::vector<std::uint32_t> all;     // `keys` and `turned`, by ascending index
  std::uint32_t holders = 0;          // number of graph tensors with these bytes
};

struct Contents {
  std::vector<Content> all;
  // For each graph tensor, an index into `all`. The index is kNone if the tensor is not to be
  // matched, or if no key has the same number of elements.
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::vector<std::uint32_t> of_tensor;
};

// Searches for equal tensors. Two tensors count as equal if their types, sizes and PlaceSums are
// equal. Needs memory for one buffer per thread. Errors: kIo, kCorrupt, kCancelled.
[[nodiscard]] Result<Contents> find_contents(const ContentSearch& search);

}  // namespace onnx_external
