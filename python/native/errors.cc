#include "native/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "base/error_code.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

nb::list lists_of(const ErrorDetails& details) {
  nb::list lists;
  for (const ErrorList& list : details.lists) {
    nb::list items;
    for (const ErrorItem& item : list.items) {
      items.append(nb::make_tuple(item.name, item.form, item.note, item.candidates));
    }
    lists.append(nb::make_tuple(list.title, items));
  }
  return lists;
}

nb::list remedies_of(const ErrorDetails& details) {
  nb::list remedies;
  for (const Remedy& remedy : details.remedies) {
    remedies.append(nb::make_tuple(remedy.option, remedy.value, remedy.when));
  }
  return remedies;
}

}  // namespace

void raise(const Error& error) {
  const ErrorDetails none;
  const ErrorDetails& details = error.details ? *error.details : none;
  const nb::object make = nb::module_::import_("onnx_external.errors").attr("_make");
  const nb::object exception = make(std::string(error_code_name(error.code)), error.message,
                                    lists_of(details), remedies_of(details));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace onnx_external::python
