// Which tensors of a checkpoint have the bytes of which data of the graph: every tensor that could
// match is read once.
#pragma once

#include <cstdint>
#include <vector>

#include "evidence/held_tensors.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct ContentSearch {
  const Model& model;
  const std::vector<HeldTensor>& held;
  const std::vector<bool>& wanted;  // of `held`: which are looked at
  const Checkpoint& checkpoint;
  const std::vector<bool>& usable;  // of its tensors
  int threads = 0;
  const ProgressFn& progress;
};

// Keys with the bytes of a held tensor, as they are or transposed; shared by all that hold the
// same. The values of keys of another floating type are converted first.
struct Content {
  bool uniform = false;               // all elements are equal
  std::vector<std::uint32_t> keys;    // in any shape, by rising index
  std::vector<std::uint32_t> turned;  // matrices whose transpose it is
  std::vector<std::uint32_t> all;     // both, by rising index
  std::uint32_t holders = 0;          // held tensors with these bytes
};

struct Contents {
  std::vector<Content> all;
  // Of each held tensor, an index into `all`; kNone: no key has its number of elements, or it was
  // not wanted.
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::vector<std::uint32_t> of_held;
};

// Two tensors count as equal when their types, sizes and sums over elements and places (PlaceSum)
// are. Memory: a buffer a thread. kIo, kCorrupt; kCancelled.
[[nodiscard]] Result<Contents> find_contents(const ContentSearch& search);

}  // namespace onnx_external
