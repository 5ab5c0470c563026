// Tensors of the caller, as onnx_external/_sources/tensors.py describes them.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "onnx_external/provided_tensors.h"

namespace onnx_external::python {

// The first exception that a function of the caller raised while it made bytes. Functions are
// called on threads of the library; the thread of the caller raises it once the work has ended.
// Thread-safe.
class MakeFailure {
 public:
  // `user`: the object that waits for the bytes, if it has to tell its own functions from others.
  explicit MakeFailure(const void* user = nullptr) : user_(user) {}
  [[nodiscard]] const void* user() const { return user_; }

  void keep(const std::string& tensor, std::exception_ptr exception);
  // Raises what was kept, if anything was: as the cause of an Error that names the tensor; as it is
  // if it is no Exception (KeyboardInterrupt, SystemExit). Needs the GIL.
  void raise_if_any() const;

 private:
  const void* user_;
  mutable std::mutex mutex_;
  std::string tensor_;
  std::exception_ptr exception_;
};

// Returns whether this thread is inside of a function that makes bytes for `user`.
[[nodiscard]] bool is_making_for(const void* user);

// Tensors of the caller, and the list that they keep alive, and with it the owners of all memory.
// All may be destroyed on any thread. But where the last reference is dropped on a thread of the
// library, the interpreter makes a state for that thread, and a process that forks meanwhile has a
// child that waits for ever (seen with CPython 3.11): so keep `list` on the caller's thread.
struct ProvidedList {
  std::vector<ProvidedTensor> tensors;
  std::shared_ptr<const void> list;
};

// Reads a list of `Loose`. Errors name the tensor.
[[nodiscard]] ProvidedList provided_tensors(nanobind::handle list,
                                            const std::shared_ptr<MakeFailure>& failure);

}  // namespace onnx_external::python
