// The extension module onnx_external._core. The package's Python files are its only user.
#include <nanobind/nanobind.h>

#include "native/bindings.h"
#include "onnx_external/version.h"

NB_MODULE(_core, module) {
  // Tensors of torch that live until the process ends keep mappings alive, and with them types.
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
