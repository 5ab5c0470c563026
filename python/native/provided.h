// Converts tensors that the Python caller passes (onnx_external/_sources/tensors.py) to the
// library's ProvidedTensor.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "onnx_external/provided_tensors.h"

namespace onnx_external::python {

// Keeps the first exception that a function of the caller raised while producing bytes. Such
// functions are called on threads of the library; the caller's thread raises the exception once the
// work has ended. Thread-safe.
class MakeFailure {
 public:
  // `user`: the object that waits for the bytes, if it must distinguish its own functions from
  // others.
  explicit MakeFailure(const void* user = nullptr) : user_(user) {}
  [[nodiscard]] const void* user() const { return user_; }

  void keep(const std::string& tensor, std::exception_ptr exception);
  // If there is an exception, raises it: as the cause of an Error that names the tensor or, if it
  // is not an Exception (KeyboardInterrupt, SystemExit), unchanged. Needs the GIL.
  void raise_if_any() const;

 private:
  const void* user_;
  mutable std::mutex mutex_;
  std::string tensor_;
  std::exception_ptr exception_;
};

// Returns whether this thread is inside a function that produces bytes for `user`.
[[nodiscard]] bool is_making_for(const void* user);

// Tensors of the caller, and the Python list that they keep alive, which in turn keeps the owners
// of all memory alive. All of them may be destroyed on any thread. However, if the last reference
// is dropped on a thread of the library, the interpreter creates a state for that thread, and if
// the process forks meanwhile, the child hangs (seen with CPython 3.11). Therefore, keep `list` on
// the caller's thread.
struct ProvidedList {
  std::vector<ProvidedTensor> tensors;
  std::shared_ptr<const void> list;
};

// Converts a list of `Loose`. Errors name the tensor.
[[nodiscard]] ProvidedList provided_tensors(nanobind::handle list,
                                            const std::shared_ptr<MakeFailure>& failure);

}  // namespace onnx_external::python
