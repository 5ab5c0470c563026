// Reads the metadata of GGUF files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include "checkpoint/gguf/gguf_metadata.h"
#include "native/bindings.h"
#include "native/errors.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

// Decodes text like the error handler "surrogateescape": bytes that are not valid UTF-8, as in some
// tokens, become surrogates.
nb::object text_of(const std::string& text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

nb::object item_of(const GgufValue& value, std::size_t i) {
  if (value.type == GgufType::kString) {
    return text_of(value.texts[i]);
  }
  if (value.type == GgufType::kBool) {
    return nb::bool_(value.numbers[i] != 0);
  }
  if (value.is_float()) {
    return nb::float_(value.real(i));
  }
  return value.is_signed() ? nb::int_(value.integer(i)) : nb::int_(value.numbers[i]);
}

nb::object object_of(const GgufValue& value) {
  if (!value.is_array) {
    return item_of(value, 0);
  }
  nb::list items;
  for (std::size_t i = 0; i < value.count; ++i) {
    items.append(item_of(value, i));
  }
  return items;
}

nb::dict gguf_metadata(const std::filesystem::path& path) {
  auto read = [&] {
    nb::gil_scoped_release released;
    return read_gguf_metadata(path);
  }();
  nb::dict out;
  for (const GgufEntry& entry : value_or_raise(std::move(read)).entries) {
    out[text_of(entry.key)] = object_of(entry.value);
  }
  return out;
}

}  // namespace

void bind_gguf(nb::module_& module) {
  module.def("gguf_metadata", &gguf_metadata, nb::arg("path"));
}

}  // namespace onnx_external::python
