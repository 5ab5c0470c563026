#include "native/provided.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <typeinfo>
#include <utility>

#include "base/text.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "onnx/model_access.h"
#include "onnx_external/model.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

// Returns a reference to a Python object that may be dropped on any thread, without the GIL.
std::shared_ptr<const void> shared_reference(nb::handle object) {
  object.inc_ref();
  return {object.ptr(), [](const void* held) {
            nb::gil_scoped_acquire gil;
            nb::handle(static_cast<PyObject*>(const_cast<void*>(held))).dec_ref();
          }};
}

// Returns the result of str(), escaped if it is not valid text, or "" if str() raises.
std::string text_of(nb::handle object) {
  const auto text = nb::steal(PyObject_Str(object.ptr()));
  const auto bytes =
      nb::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace")
                                : nullptr);
  if (!bytes.is_valid()) {
    PyErr_Clear();
    return "";
  }
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

// A function of the caller that is producing bytes. `outer` is the function inside which the save
// was started, if any.
struct Making {
  std::uint64_t identity = 0;
  const void* user = nullptr;
  std::shared_ptr<const Making> outer;
};

// The innermost function of the caller that this thread is running.
thread_local std::shared_ptr<const Making> making;

template <typename Predicate>
bool any_making(const std::shared_ptr<const Making>& from, const Predicate& is_wanted) {
  for (const Making* at = from.get(); at != nullptr; at = at->outer.get()) {
    if (is_wanted(*at)) {
      return true;
    }
  }
  return false;
}

// Sets `making` within a scope.
class MakingScope {
 public:
  explicit MakingScope(std::shared_ptr<const Making> now)
      : before_(std::exchange(making, std::move(now))) {}
  MakingScope(const MakingScope&) = delete;
  MakingScope& operator=(const MakingScope&) = delete;
  ~MakingScope() { making = std::move(before_); }

 private:
  std::shared_ptr<const Making> before_;
};

// A function that fills memory with bytes, and its origin.
struct Fill {
  PyObject* function;
  std::string name;
  std::uint64_t identity;
  std::shared_ptr<const Making> begun_in;
};

// Calls `fill` with the memory. An exception is stored in `failure`, because exceptions must not
// propagate through the library.
Status call_fill(const Fill& fill, std::span<std::byte> out, MakeFailure& failure) {
  const std::string& name = fill.name;
  nb::gil_scoped_acquire gil;
  try {
    if (any_making(fill.begun_in, [&](const Making& at) { return at.identity == fill.identity; })) {
      PyErr_SetString(PyExc_RecursionError,
                      "it depends on itself: the function that produces it saves it again");
      throw nb::python_error();
    }
    const MakingScope scope(
        std::make_shared<Making>(Making{fill.identity, failure.user(), fill.begun_in}));
    const auto view = nb::steal<nb::object>(PyMemoryView_FromMemory(
        reinterpret_cast<char*>(out.data()), static_cast<Py_ssize_t>(out.size()), PyBUF_WRITE));
    if (!view.is_valid()) {
      throw nb::python_error();
    }
    const nb::handle function(fill.function);
    function(view);
    view.attr("release")();  // the memory is the library's, so nobody may keep the view
    return {};
  } catch (...) {
    failure.keep(name, std::current_exception());
    return fail(ErrorCode::kIo, "tensor " + quote(name) + ": its data could not be produced");
  }
}

// The positions of the fields in a Loose.
constexpr std::size_t kName = 0;
constexpr std::size_t kDtype = 1;
constexpr std::size_t kShape = 2;
constexpr std::size_t kStrides = 3;
constexpr std::size_t kOffset = 4;
constexpr std::size_t kConj = 5;
constexpr std::size_t kNeg = 6;
constexpr std::size_t kPlace = 7;
constexpr std::size_t kFields = 8;

class ProvidedReader {
 public:
  ProvidedReader(std::shared_ptr<const void> list, std::shared_ptr<MakeFailure> failure)
      : list_(std::move(list)), failure_(std::move(failure)) {}

  ProvidedTensor read(nb::handle item) const {
    const auto fields = nb::cast<nb::tuple>(item);
    if (fields.size() != kFields) {
      throw nb::type_error("expected tensors in the form that _sources/tensors.py describes");
    }
    ProvidedTensor tensor;
    try {
      fill_in(tensor, fields);
    } catch (const std::bad_cast&) {
      raise(Error{ErrorCode::kInvalidArgument,
                  "tensor " + quote(tensor.info.name) +
                      ": its type, offset or size is not valid for a tensor (" +
                      text_of(nb::repr(item)) + ")"});
    }
    return tensor;
  }

 private:
  void fill_in(ProvidedTensor& tensor, const nb::tuple& fields) const {
    if (!nb::try_cast<std::string>(fields[kName], tensor.info.name)) {
      raise(Error{ErrorCode::kInvalidArgument,
                  "tensor " + text_of(nb::repr(fields[kName])) + ": its name is not UTF-8 text"});
    }
    const std::string& name = tensor.info.name;
    tensor.info.dtype = dtype_of(name, nb::cast<std::string>(fields[kDtype]));
    tensor.info.shape = numbers(name, "shape", fields[kShape]);
    if (!fields[kStrides].is_none()) {
      tensor.strides = numbers(name, "strides", fields[kStrides]);
    }
    tensor.storage_offset = nb::cast<std::uint64_t>(fields[kOffset]);
    tensor.conj = nb::cast<bool>(fields[kConj]);
    tensor.neg = nb::cast<bool>(fields[kNeg]);
    set_storage(tensor, nb::cast<nb::tuple>(fields[kPlace]));
  }

  static DType dtype_of(const std::string& name, const std::string& text) {
    const auto dtype = dtype_from_any_name(text);
    if (!dtype) {
      raise(Error{ErrorCode::kUnsupported,
                  "tensor " + quote(name) + ": has elements of type " + text +
                      ", which a weight cannot have; convert it, or leave it out"});
    }
    return *dtype;
  }

  static std::vector<std::int64_t> numbers(const std::string& name, const char* what,
                                           nb::handle value) {
    std::vector<std::int64_t> out;
    for (const nb::handle number : value) {
      std::int64_t one = 0;
      if (!nb::try_cast<std::int64_t>(number, one)) {
        raise_wrong_type("tensor " + quote(name) + ": its " + what + " " +
                         nb::cast<std::string>(nb::repr(value)) + " does not consist of integers");
      }
      out.push_back(one);
    }
    return out;
  }

  // `place` is (address, size, owner) for memory, (path, offset, length) for a range of a file, and
  // (size, function, identity) for bytes that a function makes.
  void set_storage(ProvidedTensor& tensor, const nb::tuple& place) const {
    const bool is_made = PyCallable_Check(nb::object(place[1]).ptr()) != 0;
    if (is_made) {
      const Fill fill{nb::object(place[1]).ptr(),  // the list keeps it alive
                      tensor.info.name, nb::cast<std::uint64_t>(place[2]), begun_in_};
      tensor.storage = LazyBytes{
          .size = nb::cast<std::uint64_t>(place[0]),
          .make = [fill, list = list_, failure = failure_](
                      std::span<std::byte> out) { return call_fill(fill, out, *failure); },
          .identity = fill.identity};
    } else if (nb::isinstance<nb::int_>(place[0])) {
      const auto address = nb::cast<std::uintptr_t>(place[0]);
      tensor.storage = MemoryBytes{.data = reinterpret_cast<const std::byte*>(address),
                                   .size = nb::cast<std::uint64_t>(place[1]),
                                   .owner = list_};
    } else {
      tensor.storage = FileBytes{.path = nb::cast<std::filesystem::path>(place[0]),
                                 .offset = nb::cast<std::uint64_t>(place[1]),
                                 .length = nb::cast<std::uint64_t>(place[2])};
    }
  }

  std::shared_ptr<const void> list_;
  std::shared_ptr<MakeFailure> failure_;
  std::shared_ptr<const Making> begun_in_ = making;
};

// Returns (name, bits per element) of an ONNX type. The name is torch's, or ONNX's name in lower
// case if torch lacks the type. The bits are 0 for strings and unknown types.
nb::tuple onnx_type(std::int32_t data_type) {
  const auto dtype = dtype_from_onnx(data_type);
  const std::uint32_t bits = onnx_bits(data_type);
  std::string name(onnx_type_name(data_type));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (dtype && bits >= 8) {
    name = torch_name(*dtype);
  }
  return nb::make_tuple(name, bits);
}

}  // namespace

bool is_making_for(const void* user) {
  return any_making(making, [&](const Making& at) { return at.user == user; });
}

void MakeFailure::keep(const std::string& tensor, std::exception_ptr exception) {
  const std::lock_guard lock(mutex_);
  if (!exception_) {
    tensor_ = tensor;
    exception_ = std::move(exception);
  }
}

void MakeFailure::raise_if_any() const {
  const std::lock_guard lock(mutex_);
  if (!exception_) {
    return;
  }
  try {
    std::rethrow_exception(exception_);
  } catch (const nb::python_error& error) {
    const std::string type = text_of(error.type().attr("__name__"));
    raise(Error{ErrorCode::kIo, "tensor " + quote(tensor_) + ": its data could not be produced: " +
                                    type + ": " + text_of(error.value())},
          error.value());
  }
}

ProvidedList provided_tensors(nb::handle list, const std::shared_ptr<MakeFailure>& failure) {
  ProvidedList provided{.tensors = {}, .list = shared_reference(list)};
  const ProvidedReader reader(provided.list, failure);
  provided.tensors.reserve(nb::len(list));
  for (const nb::handle item : list) {
    provided.tensors.push_back(reader.read(item));
  }
  return provided;
}

void bind_provided(nb::module_& module) {
  module.attr("loose_location") = nb::str(kInMemoryLocation.data(), kInMemoryLocation.size());
  module.def("onnx_type", &onnx_type, nb::arg("data_type"));
}

}  // namespace onnx_external::python
