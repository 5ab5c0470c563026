// Errors of the library as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external::python {

// Throws the exception of onnx_external._base.errors that belongs to the error, with its message,
// its lists and its remedies; `cause` becomes its __cause__. Needs the GIL.
[[noreturn]] void raise(const Error& error, nanobind::handle cause = {});

// Throws WrongTypeError with a message that names the argument or the tensor.
[[noreturn]] void raise_wrong_type(const std::string& message);

// The value, or the exception.
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
