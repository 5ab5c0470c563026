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
  NodeId node = 0;  // is_tensor() holds, or is_plain_value() (hqq_modules.h)
};

struct NamedTensors {
  std::vector<NamedTensor> tensors;  // in the order of the pickle; names are unique UTF-8
  std::vector<OpaqueObject> opaque;
  std::vector<RefusedTensor> refused;
  std::vector<std::string> weights;  // the weights that HQQ stores in these tensors
};

// All functions below build names as object_tree.h describes, from keys, attribute names, and
// indices of lists and tuples, joined by dots. `classes` may be null. Work and names are limited in
// proportion to the size of the pickle; kUnsupported beyond these limits. Objects that contain
// themselves are not walked again.

// Names every tensor that can be reached from the root, including the parts of opaque objects. If
// the root is a tensor, its name is "". A tensor that can be reached by several paths is listed
// under each path.
[[nodiscard]] Result<NamedTensors> name_everything(const Pickle& pickle,
                                                   const ClassFlattening* classes = nullptr);

// Names the tensors of one dict (choose_state_dict.h). If `key` is empty, these are the dict's
// values and the contents of its lists, tuples and flattened objects, but not the contents of dicts
// in it. If a key is given ("." is the root), all contents of the dict are named except opaque
// objects. Fails with kNotFound if there is no dict or no such key, with kAmbiguous if there are
// several candidates (the message lists them), and with kCorrupt for duplicate names.
[[nodiscard]] Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key,
                                                   const ClassFlattening* classes = nullptr);

// Names the recorded inputs of a model: "S.name" for keyword arguments and "S.[i]" for positional
// arguments, where S is the index of the input set and i the position. The parts of an argument
// follow after dots. An input set is (args, kwargs), a dict, or a sequence of positional arguments.
// A list of dicts, pairs or tuples is a list of input sets, and a single tensor is a single
// argument. Errors: kNotFound for an input set without tensors; kUnsupported for an argument of a
// class that is not in the table.
[[nodiscard]] Result<NamedTensors> name_recorded_inputs(const Pickle& pickle,
                                                        const ClassFlattening* classes = nullptr);

}  // namespace onnx_external
