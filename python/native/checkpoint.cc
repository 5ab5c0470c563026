// Binds checkpoints: the names, types, shapes and places of their tensors, and their bytes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/formats/foreign_folder.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/element_reader.h"
#include "mapping/quantized_names.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/mapped.h"
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
  if (const nb::object raw = keywords.take("raw"); raw.is_valid()) {
    options.stored_parts = nb::cast<bool>(raw);
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

nb::tuple tuple_of(const std::vector<std::int64_t>& numbers) {
  nb::list out;
  for (const std::int64_t number : numbers) {
    out.append(number);
  }
  return nb::tuple(out);
}

// Returns (dtype, shape, bytes, index of the file or None, offset or None). The last two give the
// place of a tensor that is one plain range of a file.
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
  return nb::make_tuple(nb::str(dtype.data(), dtype.size()), tuple_of(tensor.shape),
                        checkpoint.nbytes(index), file, offset);
}

// Reads the tensor's bytes from `first` on into a writable buffer.
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
    status = fail(ErrorCode::kInvalidArgument, "the range is not inside the tensor");
  } else {
    nb::gil_scoped_release released;
    status = checkpoint.read(index, first, {static_cast<std::byte*>(view.buf), size});
  }
  PyBuffer_Release(&view);
  check(status);
}

const SourceFile& file_of(const Checkpoint& checkpoint, std::uint32_t file) {
  if (file >= checkpoint.files().size()) {
    throw nb::index_error();
  }
  return *CheckpointAccess::files(checkpoint)[file];
}

// Returns whether the path of a file still refers to the file that was opened.
bool is_in_place(const Checkpoint& checkpoint, std::uint32_t file) {
  const SourceFile& opened = file_of(checkpoint, file);
  check(opened.check_unchanged());
  const auto now = SourceFile::open(opened.path());
  return now && (*now)->same_file(opened);
}

// Maps a range of a file, or the whole file if no length is given. Returns None if the process
// cannot map more.
nb::object map_file(const Checkpoint& checkpoint, std::uint32_t file, std::uint64_t offset,
                    std::optional<std::uint64_t> length, bool writable) {
  const SourceFile& source = file_of(checkpoint, file);
  const std::uint64_t bytes = length.value_or(source.size());
  if (bytes == 0 || source.fd() < 0) {
    return nb::none();
  }
  auto mapped =
      value_or_raise(Mapped::map(source, offset, bytes, writable ? Writable::kYes : Writable::kNo));
  return mapped ? nb::cast(*std::move(mapped)) : nb::none();
}

// Returns (file, offset and bytes of the storage, bytes from there to the first element, strides)
// for a tensor that torch can view and modify in place once the storage is in memory. Returns None
// for other tensors.
nb::object place_in_storage(const Checkpoint& checkpoint, const TensorView& view) {
  const Storage& storage = checkpoint.storages()[view.storage];
  const bool is_expanded =
      std::ranges::any_of(view.strides, [](std::int64_t stride) { return stride == 0; });
  if (storage.kind != StorageKind::kFile || storage.compression != Compression::kNone ||
      storage.computed || needs_swap(storage, view.dtype) || view.conj || view.neg ||
      (is_expanded && !is_contiguous(view.shape, view.strides))) {
    return nb::none();
  }
  return nb::make_tuple(storage.file, storage.offset, storage.bytes, view.storage_offset,
                        tuple_of(view.strides));
}

// Identifies a storage. Storages that begin at the same place of the same file are equal.
using StorageKey = std::tuple<bool, std::uint32_t, std::uint64_t>;
StorageKey key_of(const Checkpoint& checkpoint, std::uint32_t index) {
  const Storage& storage = checkpoint.storages()[index];
  return storage.computed ? StorageKey(false, index, 0)
                          : StorageKey(true, storage.file, storage.offset);
}

// Returns the tensors that share their storage with other tensors, as {index: (number of the bytes,
// place)}. Tensors with the same number have the same bytes.
nb::dict shared_tensors(const Checkpoint& checkpoint) {
  std::map<StorageKey, std::size_t> users;
  for (const TensorView& view : checkpoint.tensors()) {
    ++users[key_of(checkpoint, view.storage)];
  }
  BytesIds ids(checkpoint.storages());
  nb::dict shared;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorView& view = checkpoint.tensors()[i];
    if (users[key_of(checkpoint, view.storage)] < 2) {
      continue;
    }
    if (const auto id = ids.id_of(view)) {
      shared[nb::int_(i)] = nb::make_tuple(*id, place_in_storage(checkpoint, view));
    }
  }
  return shared;
}

nb::list files(const Checkpoint& checkpoint) {
  nb::list out;
  for (const CheckpointFile& file : checkpoint.files()) {
    out.append(nb::cast(file.path));
  }
  return out;
}

nb::list notes(const Checkpoint& checkpoint) {
  nb::list out;
  for (const std::string& note : checkpoint.notes()) {
    out.append(nb::cast(note));
  }
  return out;
}

// Returns the facts that are known about a folder, each as (kind, text).
nb::list facts_of_folder(const std::filesystem::path& folder) {
  constexpr std::array kKinds = {"foreign", "adapter", "quantized", "part"};
  nb::list out;
  for (const FolderFact& fact : folder_facts(folder)) {
    out.append(nb::make_tuple(kKinds.at(static_cast<std::size_t>(fact.kind)), fact.text));
  }
  return out;
}

// Returns (quantization method, key that shows it), or None.
nb::object quantization_of(const Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  for (const TensorView& tensor : checkpoint.tensors()) {
    names.push_back(tensor.name);
  }
  const auto found = quantized_keys(names);
  return found ? nb::object(nb::make_tuple(found->method, found->key)) : nb::none();
}

// Returns the keys whose float values are computed from codes.
nb::list quantized_names(const Checkpoint& checkpoint) {
  nb::list out;
  for (const TensorView& tensor : checkpoint.tensors()) {
    if (CheckpointAccess::quantized(checkpoint, tensor.storage) != nullptr) {
      out.append(nb::cast(tensor.name));
    }
  }
  return out;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  module.def("folder_facts", &facts_of_folder, nb::arg("folder"));
  nb::class_<Checkpoint>(module, "Checkpoint")
      .def_static("open", &open, nb::arg("paths"), nb::arg("options"))
      .def("format", [](const Checkpoint& self) { return self.format(); })
      .def("names", &names)
      .def("files", &files)
      .def("notes", &notes)
      .def("quantization", &quantization_of)
      .def("quantized_names", &quantized_names)
      .def("describe", &describe, nb::arg("index"))
      .def("read_into", &read_into, nb::arg("index"), nb::arg("first"), nb::arg("buffer"))
      .def("is_in_place", &is_in_place, nb::arg("file"))
      .def("map_file", &map_file, nb::arg("file"), nb::arg("offset"), nb::arg("length").none(),
           nb::arg("writable"))
      .def("shared_tensors", &shared_tensors);
}

}  // namespace onnx_external::python
