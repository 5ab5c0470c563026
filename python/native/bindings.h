// Declares the functions that add classes and functions to the extension module, one function for
// each source file.
#pragma once

#include <nanobind/nanobind.h>

namespace onnx_external::python {

void bind_checkpoint(nanobind::module_& module);
void bind_classes(nanobind::module_& module);
void bind_cut(nanobind::module_& module);
void bind_errors(nanobind::module_& module);
void bind_gguf(nanobind::module_& module);
void bind_jobs(nanobind::module_& module);
void bind_provided(nanobind::module_& module);
void bind_mapped(nanobind::module_& module);
void bind_writer(nanobind::module_& module);

}  // namespace onnx_external::python
