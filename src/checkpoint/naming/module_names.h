// Reads pickled modules, those of Python and of TorchScript, as their state_dict().
//
// A Python module (torch.save(model)) is recognized by its attributes `_parameters`, `_buffers` and
// `_modules`; a TorchScript module is an object of a class in `__torch__` with a dict as its state.
// Sources: torch/nn/modules/module.py (state_dict, _save_to_state_dict), torch/csrc/jit.
#pragma once

#include <vector>

#include "checkpoint/naming/script_classes.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Replaces each module that the root reaches by a dict with the names and the order of its
// state_dict(): own parameters, own persistent buffers, submodules with dots. With
// Selection::kEverything the attributes that a state_dict() omits follow, and the class is listed
// under `__class__`. Modules that contain themselves are cut there. kUnsupported if modules repeat
// their parts more often than the pickle's size allows.
[[nodiscard]] Status expand_modules(Pickle& pickle, Selection selection);

// Does the same for the modules of a TorchScript archive. `classes` distinguishes parameters and
// buffers from other tensor attributes; for classes that it does not know, all of them are taken.
// Calls of torch.jit._pickle's build_tensorlist, restore_type_tag and the like are replaced by the
// lists and dicts that they wrap. Returns the objects that hold weights in a form of their own
// (packed quantized parameters) and so are not part of a state_dict(). Errors, including those of
// ScriptClasses::find, name the archive.
[[nodiscard]] Result<std::vector<OpaqueObject>> expand_script_modules(Pickle& pickle,
                                                                      Selection selection,
                                                                      ScriptClasses& classes);

}  // namespace onnx_external
