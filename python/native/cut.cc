// Binds the cutting of models. Reports are passed as the JSON document that the command prints.
#include "onnx_external/cut.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/try.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"
#include "reports/documents.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

using Names = std::vector<std::string>;

CutOptions options_of(std::string module, Names inputs, Names outputs, Names without) {
  return CutOptions{std::move(module), std::move(inputs), std::move(outputs), std::move(without)};
}

std::string cut(nb::handle model, nb::handle piece, std::string module, Names inputs, Names outputs,
                Names without, bool overwrite, bool sync) {
  const std::filesystem::path parent = path_of(model, "model");
  const std::filesystem::path target = path_of(piece);
  const CutOptions options =
      options_of(std::move(module), std::move(inputs), std::move(outputs), std::move(without));
  const CutFileOptions file{overwrite ? Overwrite::kAllow : Overwrite::kRefuse,
                            sync ? Sync::kFiles : Sync::kNone};
  auto report = [&] {
    const nb::gil_scoped_release unlocked;
    return cut_model_file(parent, target, options, file);
  }();
  return cut_document(value_or_raise(std::move(report)));
}

Result<Piece> cut_file(const std::filesystem::path& path, const CutOptions& options) {
  TRY_ASSIGN(const auto model, Model::load(path));
  TRY_ASSIGN_IN(path.string(), auto piece, cut_model(model, options));
  return piece;
}

std::tuple<nb::bytes, std::string> cut_bytes(nb::handle model, std::string module, Names inputs,
                                             Names outputs, Names without) {
  const std::filesystem::path path = path_of(model, "model");
  const CutOptions options =
      options_of(std::move(module), std::move(inputs), std::move(outputs), std::move(without));
  auto piece = [&] {
    const nb::gil_scoped_release unlocked;
    return cut_file(path, options);
  }();
  const Piece made = value_or_raise(std::move(piece));
  return {nb::bytes(made.model.data(), made.model.size()), cut_document(made.report)};
}

}  // namespace

void bind_cut(nb::module_& module) {
  module.def("cut", &cut, nb::arg("model"), nb::arg("piece"), nb::arg("module"), nb::arg("inputs"),
             nb::arg("outputs"), nb::arg("without"), nb::arg("overwrite"), nb::arg("sync"));
  module.def("cut_bytes", &cut_bytes, nb::arg("model"), nb::arg("module"), nb::arg("inputs"),
             nb::arg("outputs"), nb::arg("without"));
}

}  // namespace onnx_external::python
