// Which tensors of a torch pickle are listed, and under which names.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/class_flattening.h"
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

// In all of these names are built by one rule (object_tree.h): keys, attribute names, and indexes
// of lists and tuples, with dots between. `classes` may be null. Work and names are bounded by the
// size of the pickle, cycles are cut; kUnsupported when the limits are passed.

// Everything reachable from the root, opaque objects' parts included. A bare tensor at the root has
// the path "". Shared parts are listed under each path.
[[nodiscard]] Result<NamedTensors> name_everything(const Pickle& pickle,
                                                   const ClassFlattening* classes = nullptr);

// The tensors of one mapping (choose_state_dict.h). With an empty `key`: its values, and what
// stands in its lists, tuples and flattening objects; not what stands in mappings that are its
// values. With a key ("." is the root): everything in it that is no opaque object. kNotFound (no
// mapping, no such key), kAmbiguous (lists the candidates), kCorrupt (twin names).
[[nodiscard]] Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key,
                                                   const ClassFlattening* classes = nullptr);

// Recorded inputs of a model: "S.name" for keyword arguments, "S.[i]" for positional ones, S being
// the number of the set and i the position; parts of an argument follow with dots. A set is
// (args, kwargs), a mapping, or a sequence of positional arguments; a list of mappings, pairs or
// tuples is several sets; a bare tensor is one argument.
// kNotFound (a set without tensors), kUnsupported (an argument of a class that is not in the
// table).
[[nodiscard]] Result<NamedTensors> name_recorded_inputs(const Pickle& pickle,
                                                        const ClassFlattening* classes = nullptr);

}  // namespace onnx_external
