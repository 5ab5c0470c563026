// Binds save, verify and inspect. Reports are passed as the JSON documents that the commands print.
// The report on a save lists its tensors only on request.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <climits>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/new_folders.h"
#include "base/parallel.h"
#include "base/try.h"
#include "inspect/inspect.h"
#include "inspect/listing.h"
#include "jobs/save_job.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"
#include "native/provided.h"
#include "native/sources.h"
#include "native/work.h"
#include "onnx_external/save_external.h"
#include "reports/documents.h"
#include "reports/page.h"
#include "save/plan_checks.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

namespace fs = std::filesystem;

using Paths = std::vector<fs::path>;

// Runs `work` without the GIL and returns its report. If a function of the caller raised an
// exception, this exception is reported instead of the error of `work`.
template <typename Report, typename Work>
Report run(nb::handle progress, ProgressFn& callback, const MakeFailure& failure,
           const Work& work) {
  std::optional<Result<Report>> result;
  run_work(progress, [&](const ProgressFn& report) {
    callback = report;
    result.emplace(work());
  });
  callback = {};
  if (!*result) {
    failure.raise_if_any();
  }
  return value_or_raise(*std::move(result));
}

Result<onnx::ModelProto> parse_model(const nb::bytes& bytes) {
  const std::string_view text(bytes.c_str(), bytes.size());
  onnx::ModelProto proto;
  if (text.size() > INT_MAX || !proto.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    return fail(ErrorCode::kCorrupt, "the model's bytes are not a ModelProto");
  }
  return proto;
}

// Returns the folder with the external data of a model, which is the current folder by default.
fs::path or_current(const fs::path& source_dir) {
  return source_dir.empty() ? fs::path(".") : source_dir;
}

// Opens tensors other than the weights to save, such as earlier weights. The options that concern
// the folder of the weights do not apply to these tensors.
Result<Checkpoint> open_others(Sources& others, OpenOptions options) {
  options.variant.clear();
  return others.open(options);
}

// A graph that the caller passes: a file, or the bytes of a ModelProto.
struct GraphArgument {
  std::string name;
  std::variant<fs::path, nb::bytes> model;
  fs::path source_dir;  // empty for the model's own folder
};

// The inputs of a save. One list contains the data of all graphs that are in memory.
struct SaveArguments {
  std::vector<GraphArgument> graphs;
  ProvidedList data;
  Sources weights;
  Sources extra;
  Sources old;  // for learn_map
};

// Converts a list of (name, model, base_dir or None).
std::vector<GraphArgument> graph_arguments(nb::handle list) {
  std::vector<GraphArgument> graphs;
  for (const nb::handle item : list) {
    const auto [name, model, base_dir] =
        nb::cast<std::tuple<std::string, nb::object, nb::object>>(item);
    GraphArgument graph{name, {}, base_dir.is_none() ? fs::path() : path_of(base_dir, "base_dir")};
    if (nb::isinstance<nb::bytes>(model)) {
      graph.model = nb::cast<nb::bytes>(model);
    } else {
      graph.model = path_of(model, "model");
    }
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

// Loads the graph. Does not need the GIL.
Result<Model> load_model(const GraphArgument& graph) {
  if (const auto* const bytes = std::get_if<nb::bytes>(&graph.model)) {
    TRY_ASSIGN(auto proto, parse_model(*bytes));
    return Model::from_proto(std::move(proto), or_current(graph.source_dir));
  }
  TRY_ASSIGN(auto model, Model::load(std::get<fs::path>(graph.model)));
  if (!graph.source_dir.empty()) {
    model.set_source_dir(graph.source_dir);
  }
  return model;
}

// Opens all inputs. Models and weights are opened at the same time, because they are independent.
Status open_inputs(SaveArguments& inputs, const OpenOptions& options, std::vector<Model>& models,
                   std::optional<Checkpoint>& checkpoint) {
  enum Input { kModels, kWeights, kInputs };
  return parallel_for(inputs.weights.empty() ? kWeights : kInputs, thread_count(options.threads),
                      [&](std::size_t input, int) -> Status {
                        if (input == kModels) {
                          for (const GraphArgument& graph : inputs.graphs) {
                            TRY_ASSIGN(auto model, load_model(graph));
                            models.push_back(std::move(model));
                          }
                        } else {
                          TRY_ASSIGN(checkpoint, inputs.weights.open(options));
                        }
                        return {};
                      });
}

Result<SaveReport> save_models(SaveArguments& inputs, const SaveTarget& target,
                               SaveOptions options) {
  // Compressed records are inflated next to the output, because /tmp may be small or in memory.
  options.open.scratch_dir = nearest_existing_folder(target.folder);
  std::optional<Checkpoint> old;
  if (const auto paths = inputs.old.paths(); paths) {
    options.learn_from = *paths;
  } else {
    TRY_ASSIGN(old, open_others(inputs.old, options.open));
    options.learn_from_open = &*old;
  }
  std::vector<Model> models;
  std::optional<Checkpoint> checkpoint;
  TRY(open_inputs(inputs, options.open, models, checkpoint));
  if (!inputs.extra.empty()) {
    TRY_ASSIGN(const auto extra, open_others(inputs.extra, options.open));
    TRY_ASSIGN(checkpoint, with_extra(models, checkpoint ? &*checkpoint : nullptr, extra, options));
  }
  SaveInputs ready;
  for (std::size_t i = 0; i < models.size(); ++i) {
    ready.graphs.push_back({inputs.graphs[i].name, std::move(models[i])});
  }
  ready.tensors = std::move(inputs.data.tensors);
  ready.checkpoint = std::move(checkpoint);
  return ready.checkpoint ? attach(target, std::move(ready), options)
                          : relayout(target, std::move(ready), options);
}

// The report on a save. For 20,000 tensors, writing and parsing the document takes 90 ms; without
// the list of tensors, it takes almost no time.
struct SaveResult {
  SaveReport report;
  RunMode mode = RunMode::kWrite;

  [[nodiscard]] std::string summary() const {
    return save_document(report, mode, ListTensors::kNo);
  }
  [[nodiscard]] std::string document() const { return save_document(report, mode); }
};

SaveResult save(nb::object graphs, nb::object tensors, nb::object weights, nb::object extra,
                nb::object folder, const std::string& data_dir, nb::object progress,
                const nb::dict& given) {
  const auto failure = std::make_shared<MakeFailure>();
  Keywords keywords(given);
  const nb::object old = keywords.take("learn_map");
  SaveOptions options = save_options(keywords);
  keywords.expect_empty();
  SaveArguments inputs{graph_arguments(graphs), provided_tensors(tensors, failure),
                       Sources(weights, failure), Sources(extra, failure),
                       Sources(old.is_valid() ? old : nb::none(), failure)};
  if (inputs.graphs.size() == 1) {
    set_data_name(options, inputs.graphs.front().name);
  }
  const SaveTarget target{.folder = folder.is_none() ? fs::path() : path_of(folder),
                          .data_dir = data_dir};
  return {run<SaveReport>(progress, options.write.progress, *failure,
                          [&] { return save_models(inputs, target, options); }),
          options.mode};
}

// Raises the exception that a save with these options would raise before it reads any input.
void check_save_options(const nb::dict& given) {
  Keywords keywords(given);
  const SaveOptions options = save_options(keywords);
  keywords.expect_empty();
  check(check_option_rules(options.plan, options.write, options.mapping.casts));
}

// One report for each of the models that were saved together. Unless weights are given for
// comparison, bytes that the models share are read once.
using VerifyReports = std::vector<VerifyReport>;

Result<VerifyReports> verify_against(const Paths& paths, Sources& against, const OpenOptions& open,
                                     const MappingOptions& mapping, const VerifyOptions& options) {
  TRY_ASSIGN(auto checkpoint, against.open(open));
  VerifyReports reports;
  for (const fs::path& path : paths) {
    TRY(add_derived_tensors_of(path, mapping, checkpoint, open.max_expand));
    TRY_ASSIGN(const auto expected, expected_tensors(path, checkpoint, mapping));
    TRY_ASSIGN(auto report, verify_model_against(path, checkpoint, expected, options));
    reports.push_back(std::move(report));
  }
  return reports;
}

Result<VerifyReports> verify_alone(const Paths& paths, const VerifyOptions& options) {
  std::vector<ModelToVerify> models;
  for (const fs::path& path : paths) {
    models.push_back({path});
  }
  return verify_models(models, nullptr, options);
}

std::string verify(nb::object model, nb::object against, nb::object progress,
                   const nb::dict& given) {
  const auto failure = std::make_shared<MakeFailure>();
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
  Sources sources(against, failure);
  Paths models;
  const auto reports =
      run<VerifyReports>(progress, options.progress, *failure, [&]() -> Result<VerifyReports> {
        TRY_ASSIGN(models, find_models(path));
        return sources.empty() ? verify_alone(models, options)
                               : verify_against(models, sources, open, mapping, options);
      });
  return verify_document(models, reports);
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
  if (const nb::object raw = keywords.take("raw"); raw.is_valid()) {
    options.open.stored_parts = nb::cast<bool>(raw);
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
  auto inspection = run<Inspection>(progress, options.progress, MakeFailure(),
                                    [&] { return inspect(paths, options); });
  keep_matching(inspection, filter);
  return inspect_document(inspection);
}

std::string page_of(const std::string& title, const std::string& document,
                    const nb::object& verified) {
  if (!verified.is_none()) {
    if (const auto models = find_models(path_of(verified))) {
      return verify_page(title, document, *models);
    }
  }
  return html_page(title, document);
}

Overwrite may_replace(bool overwrite) {
  return overwrite ? Overwrite::kAllow : Overwrite::kRefuse;
}

void check_page_of(const nb::object& path, bool overwrite) {
  check(check_page(path_of(path), may_replace(overwrite)));
}

void write_page_of(const nb::object& path, const std::string& page, bool overwrite) {
  check(write_page(path_of(path), page, may_replace(overwrite)));
}

}  // namespace

void bind_jobs(nb::module_& module) {
  nb::class_<SaveResult>(module, "SaveResult")
      .def("summary", &SaveResult::summary)
      .def("document", &SaveResult::document);
  module.def("save", &save, nb::arg("graphs"), nb::arg("tensors"), nb::arg("weights").none(),
             nb::arg("extra").none(), nb::arg("folder").none(), nb::arg("data_dir"),
             nb::arg("progress").none(), nb::arg("options"));
  module.def("check_save_options", &check_save_options, nb::arg("options"));
  module.def("verify", &verify, nb::arg("model"), nb::arg("against").none(),
             nb::arg("progress").none(), nb::arg("options"));
  module.def("page", &page_of, nb::arg("title"), nb::arg("document"),
             nb::arg("verified") = nb::none());
  module.def("check_page", &check_page_of, nb::arg("path"), nb::arg("overwrite"));
  module.def("write_page", &write_page_of, nb::arg("path"), nb::arg("page"), nb::arg("overwrite"));
  module.def("inspect", &inspect_files, nb::arg("files"), nb::arg("progress").none(),
             nb::arg("options"));
}

}  // namespace onnx_external::python
