// Parses the `.metadata` file of a distributed checkpoint: its tensors, and the place of each of
// their chunks.
//
// Source: torch/distributed/checkpoint/{metadata,filesystem,planner_helpers}.py (and the same under
// torch/distributed/_shard/checkpoint in torch 1.13); docs/formats.md lists what is read. Pure.
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

// A run of bytes in a file beside `.metadata`, not yet checked against that file.
struct DcpSlice {
  std::string file;  // a plain name
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Has the rank of the tensor. No size is 0: empty chunks, which idle ranks write, are skipped.
struct DcpChunk {
  std::vector<std::int64_t> offsets;  // index of its first element in the tensor
  Shape sizes;
  DcpSlice slice;
};

// Keys and indices from the root of the saved object.
using DcpPath = std::vector<std::variant<std::string, std::int64_t>>;

struct DcpItem {
  std::string name;
  DcpPath path;  // {"model", "fc.weight"}; {name} if the planner recorded no path
  bool is_tensor = false;
  std::string refusal;  // why the tensor cannot be read; "" if it can
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<DcpChunk> chunks;
};

// The items in the order of the file; names are unique. kUnsupported: another kind of metadata,
// transformed bytes. kCorrupt: values of the wrong kind, a chunk without a place, an unsafe file
// name. The work is bounded by the size of the pickle, however much its parts are shared.
[[nodiscard]] Result<std::vector<DcpItem>> parse_dcp_metadata(const Pickle& pickle);

}  // namespace onnx_external
