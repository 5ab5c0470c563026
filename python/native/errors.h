// Raises errors of the library as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external::python {

// Throws the exception in onnx_external._base.errors that corresponds to the error, with its
// message, lists and remedies; `cause` becomes its __cause__. Needs the GIL.
[[noreturn]] void raise(const Error& error, nanobind::handle cause = {});

// Throws WrongTypeError with a message that names the argument or the tensor.
[[noreturn]] void raise_wrong_type(const std::string& message);

// Returns the value, or throws the exception for the error.
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) {
    raise(result.error());
  }
  return *std::move(result);
}
inline void check(const Status& status) {
  if (!status) {
    raise(status.error());
  }
}

}  // namespace onnx_external::python
