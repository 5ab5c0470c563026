// Replaces each pickled Python or TorchScript module by the dict that its state_dict() would
// return.
//
// A Python module (torch.save(model)) is recognized by its attributes `_parameters`, `_buffers` and
// `_modules`; a TorchScript module is an object of a class in `__torch__` whose state is a dict.
// Sources: torch/nn/modules/module.py (state_dict, _save_to_state_dict), torch/csrc/jit.
#pragma once

#include <vector>

#include "checkpoint/naming/script_classes.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Replaces each module that can be reached from the root by a dict with the names and the order of
// its state_dict(): its own parameters, its own persistent buffers, then submodules with dotted
// names. With Selection::kEverything, the attributes that state_dict() omits follow, and the class
// is listed under `__class__`. If a module contains itself, the inner occurrence is not expanded.
// Fails with kUnsupported if modules repeat their parts more often than the size of the pickle
// allows (WalkBudget).
[[nodiscard]] Status expand_modules(Pickle& pickle, Selection selection);

// Replaces the modules in a TorchScript archive, like expand_modules(). `classes` distinguishes
// parameters and buffers from other tensor attributes. For classes that it does not know, all
// tensor attributes are included. Calls of torch.jit._pickle's build_tensorlist, restore_type_tag
// and similar functions are replaced by the lists and dicts that they wrap. Returns the objects
// with weights in a special format (packed quantized parameters), which are not part of a
// state_dict(). Errors, including those of ScriptClasses::find(), state the archive.
[[nodiscard]] Result<std::vector<OpaqueObject>> expand_script_modules(Pickle& pickle,
                                                                      Selection selection,
                                                                      ScriptClasses& classes);

}  // namespace onnx_external
