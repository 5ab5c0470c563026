// Makes the Python classes that the caller has registered for flattening
// (onnx_external/_sources/classes.py) available to the library.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>
#include <vector>

#include "onnx_external/class_flattening.h"

namespace onnx_external::python {

// The classes whose objects are flattened during one call: those that the library knows, and those
// that were registered when the call began. Created and destroyed by the thread of the call, with
// the GIL. The table may be used from any thread without the GIL; its functions acquire it.
class CallClasses {
 public:
  CallClasses();
  ~CallClasses();
  CallClasses(const CallClasses&) = delete;
  CallClasses& operator=(const CallClasses&) = delete;

  [[nodiscard]] const ClassFlattening& table() const;

  // Returns the exception that a flattening function raised in the innermost call of this thread,
  // if `error` was made from it. Needs the GIL.
  [[nodiscard]] static nanobind::object cause_of(const Error& error);

 private:
  [[nodiscard]] Result<std::vector<FlattenedPart>> flatten(nanobind::handle function,
                                                           const PickledValue& object);
  [[nodiscard]] Error keep(const nanobind::python_error& error);

  CallClasses* outer_;         // the call whose function made this call, if any
  nanobind::dict registered_;  // keeps the functions alive
  ClassFlattening table_;      // empty if nothing is registered
  // The exceptions that functions raised, with the details of the errors that were made from them.
  std::vector<std::pair<std::shared_ptr<const ErrorDetails>, nanobind::object>> raised_;
};

}  // namespace onnx_external::python
