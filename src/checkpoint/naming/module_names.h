// Pickled modules, Python's and TorchScript's, read as what their state_dict() holds.
//
// A Python module (torch.save(model)) is told by its attributes `_parameters`, `_buffers` and
// `_modules`; a TorchScript module is an object of a class in `__torch__` with a dict as its state.
// Sources: torch/nn/modules/module.py (state_dict, _save_to_state_dict), torch/csrc/jit.
#pragma once

#include <vector>

#include "checkpoint/naming/script_classes.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Puts a dict in the place of each module that the root reaches, with the names and the order of
// its state_dict(): own parameters, own persistent buffers, submodules with dots. With
// Selection::kEverything the attributes that a state_dict() leaves out follow, and the class stands
// under `__class__`. Modules that contain themselves are cut.
// kUnsupported when modules repeat their parts beyond what the pickle's size allows.
[[nodiscard]] Status expand_modules(Pickle& pickle, Selection selection);

// The same for the modules of a TorchScript archive; `classes` tells parameters and buffers apart
// from other tensor attributes, all of them are taken where it cannot. The lists and dicts behind
// torch.jit._pickle's build_tensorlist, restore_type_tag and the like stand in their own place
// then. Returns the objects that hold weights in a form of their own (packed quantized parameters)
// and so have no place in a state_dict(). Errors name the archive; those of ScriptClasses::find
// too.
[[nodiscard]] Result<std::vector<OpaqueObject>> expand_script_modules(Pickle& pickle,
                                                                      Selection selection,
                                                                      ScriptClasses& classes);

}  // namespace onnx_external
