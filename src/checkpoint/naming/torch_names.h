// Decides which tensors of a torch pickle are listed, and under which names.
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

// All functions below build names by one rule (object_tree.h): keys, attribute names, and indices
// of lists and tuples, joined by dots. `classes` may be null. The size of the pickle bounds the
// work and the names, and cycles are cut off; kUnsupported if the limits are exceeded.

// Names every tensor that can be reached from the root, including the parts of opaque objects. A
// single tensor at the root has the path "". Shared parts are listed under each path.
[[nodiscard]] Result<NamedTensors> name_everything(const Pickle& pickle,
                                                   const ClassFlattening* classes = nullptr);

// Names the tensors of one dict (choose_state_dict.h). If `key` is empty: the dict's values and the
// contents of its lists, tuples and flattened objects, but not of dicts that are its values. With a
// key ("." is the root): everything in the dict except opaque objects. kNotFound (no dict, no such
// key), kAmbiguous (lists the candidates), kCorrupt (duplicate names).
[[nodiscard]] Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key,
                                                   const ClassFlattening* classes = nullptr);

// Names the recorded inputs of a model: "S.name" for keyword arguments, "S.[i]" for positional
// ones, where S is the index of the input set and i the position; the parts of an argument follow
// after dots. An input set is (args, kwargs), a dict, or a sequence of positional arguments; a list
// of dicts, pairs or tuples is several input sets; a single tensor is one argument. kNotFound (an
// input set without tensors), kUnsupported (an argument of a class that is not in the table).
[[nodiscard]] Result<NamedTensors> name_recorded_inputs(const Pickle& pickle,
                                                        const ClassFlattening* classes = nullptr);

}  // namespace onnx_external
