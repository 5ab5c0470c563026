// Defines the extension module onnx_external._core, which only the Python files of the package use.
#include <nanobind/nanobind.h>

#include "native/bindings.h"
#include "onnx_external/version.h"

NB_MODULE(_core, module) {
  // Tensors that torch keeps until the process ends also keep their mappings and the types of these
  // mappings alive, which nanobind would report as leaks.
  nanobind::set_leak_warnings(false);
  module.attr("version") = ONNX_EXTERNAL_VERSION;
  onnx_external::python::bind_checkpoint(module);
  onnx_external::python::bind_classes(module);
  onnx_external::python::bind_cut(module);
  onnx_external::python::bind_errors(module);
  onnx_external::python::bind_gguf(module);
  onnx_external::python::bind_jobs(module);
  onnx_external::python::bind_provided(module);
  onnx_external::python::bind_mapped(module);
  onnx_external::python::bind_writer(module);
}
