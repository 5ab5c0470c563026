// Parses the `.metadata` file of a distributed checkpoint, which lists its tensors and the file and
// offset of each of their chunks.
//
// Source: torch/distributed/checkpoint/{metadata,filesystem,planner_helpers}.py (and the same under
// torch/distributed/_shard/checkpoint in torch 1.13); docs/formats.md lists what is read.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/dtype.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// A range of bytes in a file next to `.metadata`. It has not been checked against the size of that
// file.
struct DcpSlice {
  std::string file;  // a plain name, without folders
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A chunk of a tensor, with as many dimensions as the tensor. No size is 0, because the empty
// chunks that some ranks write are skipped.
struct DcpChunk {
  std::vector<std::int64_t> offsets;  // position of the chunk's first element in the tensor
  Shape sizes;
  DcpSlice slice;
};

// The keys and indices that lead to a value from the root of the saved object.
using DcpPath = std::vector<std::variant<std::string, std::int64_t>>;

struct DcpItem {
  std::string name;
  DcpPath path;  // {"model", "fc.weight"}; {name} if the planner recorded no path
  bool is_tensor = false;
  std::string refusal;  // the reason why the tensor cannot be read; "" if it can
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<DcpChunk> chunks;
};

// Returns the items in the order of the file. Their names are unique. Fails with kUnsupported for
// another kind of metadata and for transformed bytes. Fails with kCorrupt for values of the wrong
// type, a chunk without a storage location, and an unsafe file name. The work is bounded by the
// size of the pickle, even if the pickle refers to the same objects many times. A pure function.
[[nodiscard]] Result<std::vector<DcpItem>> parse_dcp_metadata(const Pickle& pickle);

}  // namespace onnx_external
