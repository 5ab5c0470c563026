// The caller's classes, which onnx_external/_sources/classes.py keeps.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>
#include <vector>

#include "onnx_external/class_flattening.h"

namespace onnx_external::python {

// How objects flatten during one call: the classes that the library knows, and those that were
// registered when the call began. Made and destroyed by the thread of the call, with the GIL. The
// table may be used from any thread, without the GIL, which its functions acquire.
class CallClasses {
 public:
  CallClasses();
  ~CallClasses();
  CallClasses(const CallClasses&) = delete;
  CallClasses& operator=(const CallClasses&) = delete;

  [[nodiscard]] const ClassFlattening& table() const;

  // Returns what a function raised in the innermost call of this thread, if it became `error`.
  // Needs the GIL.
  [[nodiscard]] static nanobind::object cause_of(const Error& error);

 private:
  [[nodiscard]] Result<std::vector<FlattenedPart>> flatten(nanobind::handle function,
                                                           const PickledValue& object);
  [[nodiscard]] Error keep(const nanobind::python_error& error);

  CallClasses* outer_;         // of a call whose function made this call
  nanobind::dict registered_;  // keeps the functions alive
  ClassFlattening table_;      // empty: nothing is registered
  // What functions raised, with the details of the errors that it became.
  std::vector<std::pair<std::shared_ptr<const ErrorDetails>, nanobind::object>> raised_;
};

}  // namespace onnx_external::python
