#include "native/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <string>

#include "base/error_lists.h"
#include "native/bindings.h"
#include "native/classes.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

nb::list lists_of(const ErrorDetails& details) {
  nb::list lists;
  for (const ErrorList& list : details.lists) {
    nb::list items;
    for (const ErrorItem& item : list.items) {
      items.append(nb::make_tuple(item.name, item.form, item.note, item.candidates, list.owner));
    }
    lists.append(nb::make_tuple(std::string(error_kind_name(list.kind)), items));
  }
  return lists;
}

nb::list remedies_of(const ErrorDetails& details) {
  nb::list remedies;
  for (const Remedy& remedy : details.remedies) {
    remedies.append(
        nb::make_tuple(std::string(option_name(remedy.option)), remedy.value, remedy.when));
  }
  return remedies;
}

// Reports the exception `cause` that a function of the caller raised. It becomes the cause of our
// exception. If it is not an Exception (KeyboardInterrupt, SystemExit), it is raised unchanged.
void raise_from(nb::handle exception, nb::handle cause) {
  if (PyErr_GivenExceptionMatches(cause.ptr(), PyExc_Exception) == 0) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause.ptr())), cause.ptr());
    throw nb::python_error();
  }
  nb::setattr(exception, "__cause__", cause);
}

// Returns the title of a list that was made in Python, or that Python took from an error.
std::string title_of_list(const std::string& kind, const std::string& owner) {
  for (std::size_t i = 0; i < kErrorKinds; ++i) {
    if (error_kind_name(static_cast<ErrorKind>(i)) == kind) {
      return list_title({static_cast<ErrorKind>(i), owner, {}});
    }
  }
  throw nb::key_error(kind.c_str());
}

}  // namespace

void raise_wrong_type(const std::string& message) {
  const nb::object type = nb::module_::import_("onnx_external._base.errors").attr("WrongTypeError");
  PyErr_SetString(type.ptr(), message.c_str());
  throw nb::python_error();
}

void bind_errors(nb::module_& module) {
  module.def("list_title", &title_of_list, nb::arg("kind"), nb::arg("owner"));
}

void raise(const Error& error, nb::handle cause) {
  const ErrorDetails none;
  const ErrorDetails& details = error.details ? *error.details : none;
  const nb::object make = nb::module_::import_("onnx_external._base.errors").attr("_make");
  const nb::object exception = make(std::string(error_code_name(error.code)),
                                    std::string(error_kind_name(kind_of(error.details.get()))),
                                    error.message, lists_of(details), remedies_of(details));
  const nb::object of_class = CallClasses::cause_of(error);
  if (of_class.is_valid()) {
    raise_from(exception, of_class);
  } else if (cause.is_valid()) {
    raise_from(exception, cause);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace onnx_external::python
