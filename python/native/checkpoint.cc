// Checkpoints: names, forms and places of tensors, and their bytes.
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <cerrno>

#include "checkpoint/storage/checkpoint_access.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

Checkpoint open(nb::object paths, const nb::dict& given) {
  Keywords keywords(given);
  OpenOptions options = open_options(keywords);
  if (const nb::object threads = keywords.take("threads"); threads.is_valid()) {
    options.threads = nb::cast<int>(threads);
  }
  keywords.expect_empty();
  const auto all = paths_of(paths);
  auto checkpoint = [&] {
    nb::gil_scoped_release released;
    return open_checkpoint(all, options);
  }();
  return value_or_raise(std::move(checkpoint));
}

nb::list names(const Checkpoint& checkpoint) {
  nb::list out;
  for (const TensorView& tensor : checkpoint.tensors()) {
    out.append(nb::cast(tensor.name));
  }
  return out;
}

nb::tuple shape_of(const Shape& shape) {
  nb::list out;
  for (const std::int64_t dim : shape) {
    out.append(dim);
  }
  return nb::tuple(out);
}

// (dtype, shape, bytes, index of the file or None, offset or None): the place of a plain range.
nb::tuple describe(const Checkpoint& checkpoint, std::size_t index) {
  if (index >= checkpoint.tensors().size()) {
    throw nb::index_error();
  }
  const TensorView& tensor = checkpoint.tensors()[index];
  const std::string_view dtype = torch_name(tensor.dtype);
  const auto range = checkpoint.plain_range(index);
  nb::object file = nb::none();
  nb::object offset = nb::none();
  if (range) {
    file = nb::cast(range->file);
    offset = nb::cast(range->offset);
  }
  return nb::make_tuple(nb::str(dtype.data(), dtype.size()), shape_of(tensor.shape),
                        checkpoint.nbytes(index), file, offset);
}

// The bytes from `first` on, into a buffer that can be written.
void read_into(const Checkpoint& checkpoint, std::size_t index, std::uint64_t first,
               nb::handle buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) {
    throw nb::python_error();
  }
  const auto size = static_cast<std::uint64_t>(view.len);
  Status status;
  if (index >= checkpoint.tensors().size() || first > checkpoint.nbytes(index) ||
      size > checkpoint.nbytes(index) - first) {
    status = fail(ErrorCode::kInvalidArgument, "the range is not inside of the tensor");
  } else {
    nb::gil_scoped_release released;
    status = checkpoint.read(index, first, {static_cast<std::byte*>(view.buf), size});
  }
  PyBuffer_Release(&view);
  check(status);
}

// A descriptor of a file as it was opened, for the caller to map and to close; by now another file
// may have its name. It is refused if the file was written to since.
int duplicate_file(const Checkpoint& checkpoint, std::uint32_t file) {
  if (file >= checkpoint.files().size()) {
    throw nb::index_error();
  }
  check(checkpoint.check_unchanged());
  const int fd = ::fcntl(CheckpointAccess::files(checkpoint)[file]->fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  return fd;
}

nb::list files(const Checkpoint& checkpoint) {
  nb::list out;
  for (const CheckpointFile& file : checkpoint.files()) {
    out.append(nb::cast(file.path));
  }
  return out;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  nb::class_<Checkpoint>(module, "Checkpoint")
      .def_static("open", &open, nb::arg("paths"), nb::arg("options"))
      .def("format", [](const Checkpoint& self) { return self.format(); })
      .def("names", &names)
      .def("files", &files)
      .def("describe", &describe, nb::arg("index"))
      .def("read_into", &read_into, nb::arg("index"), nb::arg("first"), nb::arg("buffer"))
      .def("duplicate_file", &duplicate_file, nb::arg("file"));
}

}  // namespace onnx_external::python
