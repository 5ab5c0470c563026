// save, verify and inspect. Reports travel as the JSON documents that the commands print.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "common/documents.h"
#include "inspect/inspect.h"
#include "inspect/listing.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"
#include "native/work.h"
#include "onnx_external/save_external.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

namespace fs = std::filesystem;

using Paths = std::vector<fs::path>;

// A report of `work`, which runs without the GIL.
template <typename Report, typename Work>
Report run(nb::handle progress, ProgressFn& callback, const Work& work) {
  std::optional<Result<Report>> result;
  run_work(progress, [&](const ProgressFn& report) {
    callback = report;
    result.emplace(work());
  });
  callback = {};
  return value_or_raise(*std::move(result));
}

SaveTarget target_of(const fs::path& folder, const std::string& model_name,
                     const std::string& data_dir) {
  return SaveTarget{.folder = folder, .model_name = model_name, .data_dir = data_dir};
}

// A graph: a file, or the bytes of a ModelProto.
Result<SaveReport> save_any(const std::optional<fs::path>& path, const onnx::ModelProto& proto,
                            const Paths& weights, const SaveTarget& target,
                            const SaveOptions& options) {
  if (weights.empty()) {
    return path ? relayout_model(target, *path, options) : relayout_model(target, proto, options);
  }
  return path ? save_graph_with_external_data(target.folder, target.model_name, target.data_dir,
                                              weights, *path, options)
              : save_model_with_external_data(target.folder, target.model_name, target.data_dir,
                                              weights, proto, options);
}

std::string save(nb::object model, nb::object weights, nb::object folder,
                 const std::string& model_name, const std::string& data_dir, nb::object progress,
                 const nb::dict& given) {
  Keywords keywords(given);
  SaveOptions options = save_options(keywords);
  keywords.expect_empty();
  std::optional<fs::path> path;
  onnx::ModelProto proto;
  if (nb::isinstance<nb::bytes>(model)) {
    const auto bytes = nb::cast<nb::bytes>(model);
    bool parsed = bytes.size() <= INT_MAX;
    if (parsed) {
      nb::gil_scoped_release released;
      parsed = proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    }
    if (!parsed) {
      raise(Error{ErrorCode::kCorrupt, "the model's bytes are no ModelProto"});
    }
  } else {
    path = path_of(model);
  }
  const Paths paths = weights.is_none() ? Paths() : paths_of(weights);
  const SaveTarget target =
      target_of(folder.is_none() ? fs::path() : path_of(folder), model_name, data_dir);
  const auto report = run<SaveReport>(progress, options.write.progress, [&] {
    return save_any(path, proto, paths, target, options);
  });
  return save_document(report, options.mode);
}

Result<VerifyReport> verify_any(const fs::path& path, const Paths& against, const OpenOptions& open,
                                const MappingOptions& mapping, const VerifyOptions& options) {
  auto model = find_model(path);
  if (!model) {
    return fail(std::move(model).error());
  }
  if (against.empty()) {
    return verify_model(*model, options);
  }
  auto checkpoint = open_checkpoint(against, open);
  if (!checkpoint) {
    return fail(std::move(checkpoint).error());
  }
  auto expected = expected_tensors(*model, *checkpoint, mapping);
  if (!expected) {
    return fail(std::move(expected).error());
  }
  return verify_model_against(*model, *checkpoint, *expected, options);
}

std::string verify(nb::object model, nb::object against, nb::object progress,
                   const nb::dict& given) {
  Keywords keywords(given);
  OpenOptions open = open_options(keywords);
  const MappingOptions mapping = mapping_options(keywords);
  VerifyOptions options;
  if (const nb::object threads = keywords.take("threads"); threads.is_valid()) {
    options.threads = nb::cast<int>(threads);
  }
  if (const nb::object cold = keywords.take("cold"); cold.is_valid() && nb::cast<bool>(cold)) {
    options.drop_cache = DropCache::kYes;
  }
  keywords.expect_empty();
  open.threads = options.threads;
  const fs::path path = path_of(model);
  const Paths paths = against.is_none() ? Paths() : paths_of(against);
  const auto report = run<VerifyReport>(
      progress, options.progress, [&] { return verify_any(path, paths, open, mapping, options); });
  return verify_document(report);
}

std::string inspect_files(nb::object files, nb::object progress, const nb::dict& given) {
  Keywords keywords(given);
  InspectOptions options;
  options.open = open_options(keywords);
  if (const nb::object sha256 = keywords.take("sha256"); sha256.is_valid()) {
    options.digests = nb::cast<bool>(sha256) ? Digests::kSha256 : Digests::kNone;
  }
  if (const nb::object threads = keywords.take("threads"); threads.is_valid()) {
    options.threads = nb::cast<int>(threads);
  }
  NameFilter filter;
  if (const nb::object expression = keywords.take("filter"); expression.is_valid()) {
    filter = value_or_raise(NameFilter::make(nb::cast<std::string>(expression)));
    options.digest_if = [&](std::size_t, const InspectedTensor& tensor) {
      return filter(tensor.name);
    };
  }
  keywords.expect_empty();
  const Paths paths = paths_of(files);
  auto inspection =
      run<Inspection>(progress, options.progress, [&] { return inspect(paths, options); });
  keep_matching(inspection, filter);
  return inspect_document(inspection);
}

}  // namespace

void bind_jobs(nb::module_& module) {
  module.def("save", &save, nb::arg("model"), nb::arg("weights").none(), nb::arg("folder").none(),
             nb::arg("model_name"), nb::arg("data_dir"), nb::arg("progress").none(),
             nb::arg("options"));
  module.def("verify", &verify, nb::arg("model"), nb::arg("against").none(),
             nb::arg("progress").none(), nb::arg("options"));
  module.def("inspect", &inspect_files, nb::arg("files"), nb::arg("progress").none(),
             nb::arg("options"));
}

}  // namespace onnx_external::python
