// Which tensors of a torch pickle are listed, and under which names.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/pickle.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct NamedTensor {
  std::string name;
  NodeId node = 0;  // is_tensor() holds
};

struct NamedTensors {
  std::vector<NamedTensor> tensors;  // in the order of the pickle; names are unique UTF-8
  std::vector<OpaqueObject> opaque;
  std::vector<RefusedTensor> refused;
};

// Everything reachable from the root, under dotted paths: keys of mappings, indexes of lists and
// tuples, attribute names of objects (from BUILD). A bare tensor at the root has the path "".
// Shared parts are listed under each path, cycles are cut. Work and names are bounded by the size
// of the pickle. kUnsupported when the limits are passed.
[[nodiscard]] Result<NamedTensors> name_everything(const Pickle& pickle);

// The tensors of one mapping. With an empty `key`: the only mapping, at the root or below it
// through string keys, that has a tensor as a value; only its own tensors are listed. With a key:
// the mapping at that dotted path ("." is the root), and mappings inside it add their keys with
// dots. Other values are skipped.
// kNotFound (no mapping, no such key), kAmbiguous (lists the candidates), kCorrupt (twin names).
[[nodiscard]] Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key);

}  // namespace onnx_external
