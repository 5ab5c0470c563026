#include "native/classes.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "checkpoint/naming/known_classes.h"
#include "native/bindings.h"
#include "native/errors.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

using Parts = std::vector<FlattenedPart>;

// The Python object for a PickledValue. It may outlive the call of the flattening function; using
// it after that is an error.
class PickledHandle {
 public:
  PickledHandle(const PickledValue& value, std::shared_ptr<const bool> is_valid)
      : value_(value), is_valid_(std::move(is_valid)) {}

  [[nodiscard]] const PickledValue& value() const {
    if (!*is_valid_) {
      raise(Error{ErrorCode::kInvalidArgument,
                  "a PickledValue is valid only while the function that receives it runs"});
    }
    return value_;
  }
  [[nodiscard]] PickledHandle with(const PickledValue& value) const { return {value, is_valid_}; }
  [[nodiscard]] bool is_of(const std::shared_ptr<const bool>& call) const {
    return is_valid_ == call;
  }

 private:
  PickledValue value_;
  std::shared_ptr<const bool> is_valid_;
};

const char* kind_name(PickledKind kind) {
  switch (kind) {
    case PickledKind::kNone:
      return "none";
    case PickledKind::kTensor:
      return "tensor";
    case PickledKind::kList:
      return "list";
    case PickledKind::kTuple:
      return "tuple";
    case PickledKind::kDict:
      return "dict";
    case PickledKind::kObject:
      return "object";
    case PickledKind::kOther:
      return "other";
  }
  return "";
}

nb::list handles(const PickledHandle& parent, const std::vector<PickledValue>& values) {
  nb::list out;
  for (const PickledValue& value : values) {
    out.append(nb::cast(parent.with(value)));
  }
  return out;
}

nb::list named_handles(const PickledHandle& parent) {
  nb::list out;
  for (const auto& [name, value] : parent.value().items()) {
    out.append(nb::make_tuple(name, parent.with(value)));
  }
  return out;
}

nb::object attribute(const PickledHandle& self, const std::string& name) {
  const auto found = self.value().attribute(name);
  return found ? nb::cast(self.with(*found)) : nb::none();
}

std::string type_of(nb::handle value) {
  return nb::cast<std::string>(nb::object(value.type().attr("__name__")));
}

Error wrong_result(const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               "its flattening function returned " + what +
                   "; expected a dict that maps names to PickledValues, or pairs of a name and a "
                   "PickledValue"};
}

// Converts one of the (name, value) pairs that a flattening function returned.
Result<FlattenedPart> part_of(nb::handle pair, const std::shared_ptr<const bool>& call) {
  if (!nb::isinstance<nb::tuple>(pair) || nb::len(pair) != 2) {
    return fail(wrong_result("a list with a " + type_of(pair)));
  }
  const nb::object name = pair[0];
  const nb::object value = pair[1];
  if (!nb::isinstance<nb::str>(name)) {
    return fail(wrong_result("a name that is a " + type_of(name)));
  }
  auto text = nb::cast<std::string>(name);
  if (!nb::isinstance<PickledHandle>(value)) {
    return fail(wrong_result("a " + type_of(value) + " under the name '" + text + "'"));
  }
  const auto& handle = nb::cast<const PickledHandle&>(value);
  if (!handle.is_of(call)) {
    return fail(wrong_result("a PickledValue of another object under the name '" + text + "'"));
  }
  return FlattenedPart{std::move(text), handle.value()};
}

Result<Parts> parts_of(const nb::object& result, const std::shared_ptr<const bool>& call) {
  const bool is_dict = nb::isinstance<nb::dict>(result);
  if (!is_dict && !nb::hasattr(result, "__iter__")) {
    return fail(wrong_result("a " + type_of(result)));
  }
  Parts parts;
  for (const nb::handle pair : is_dict ? nb::object(result.attr("items")()) : result) {
    TRY_ASSIGN(auto part, part_of(pair, call));
    parts.push_back(std::move(part));
  }
  return parts;
}

// The innermost call that this thread is in. Calls nest if a flattening function opens a
// checkpoint.
thread_local CallClasses* innermost = nullptr;

}  // namespace

CallClasses::CallClasses() : outer_(innermost) {
  registered_.update(nb::module_::import_("onnx_external._sources.classes").attr("_registered"));
  if (registered_.size() > 0) {
    table_ = known_classes();
  }
  for (const auto& [name, function] : registered_) {
    table_.register_class_flattening(
        nb::cast<std::string>(name),
        [this, function = nb::handle(function)](const PickledValue& object) {
          return flatten(function, object);
        });
  }
  innermost = this;
}

CallClasses::~CallClasses() {
  innermost = outer_;
}

const ClassFlattening& CallClasses::table() const {
  return table_.empty() ? known_classes() : table_;
}

nb::object CallClasses::cause_of(const Error& error) {
  if (innermost != nullptr && error.details) {
    for (const auto& [details, exception] : innermost->raised_) {
      if (details == error.details) {
        return exception;
      }
    }
  }
  return {};
}

Error CallClasses::keep(const nb::python_error& error) {
  std::string text = "its flattening function raised " + type_of(error.value());
  const auto said = nb::cast<std::string>(nb::str(error.value()));
  text += said.empty() ? said : ": " + said;
  Error made{ErrorCode::kInvalidArgument, std::move(text), std::make_shared<ErrorDetails>()};
  raised_.emplace_back(made.details, nb::borrow(error.value()));
  return made;
}

Result<Parts> CallClasses::flatten(nb::handle function, const PickledValue& object) {
  const nb::gil_scoped_acquire held;
  const auto is_valid = std::make_shared<bool>(true);
  Result<Parts> parts;
  try {
    parts = parts_of(function(PickledHandle(object, is_valid)), is_valid);
  } catch (const nb::python_error& error) {
    parts = fail(keep(error));
  }
  *is_valid = false;
  return parts;
}

void bind_classes(nb::module_& module) {
  nb::class_<PickledHandle>(module, "PickledValue")
      .def_prop_ro("kind", [](const PickledHandle& self) { return kind_name(self.value().kind()); })
      .def_prop_ro("type", [](const PickledHandle& self) { return self.value().type(); })
      .def("elements",
           [](const PickledHandle& self) { return handles(self, self.value().elements()); })
      .def("items", &named_handles)
      .def("arguments",
           [](const PickledHandle& self) { return handles(self, self.value().arguments()); })
      .def("attribute", &attribute, nb::arg("name"));
}

}  // namespace onnx_external::python
