// The first steps of a save: what is given is checked and opened.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "base/new_folders.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/provided_checkpoint.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "jobs/save_job.h"
#include "mapping/graph_parts.h"
#include "onnx/model_access.h"
#include "save/output_names.h"
#include "save/plan_checks.h"
#include "save/recovery.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Graphs = std::vector<GraphToSave>;

// Neither a path nor a model.
bool is_nothing(const GraphToSave& given) {
  const auto* const path = std::get_if<fs::path>(&given.graph);
  const auto* const proto = std::get_if<const onnx::ModelProto*>(&given.graph);
  return (path != nullptr && path->empty()) || (proto != nullptr && *proto == nullptr);
}

Status check_graphs(const Graphs& graphs) {
  return graphs.empty() || std::any_of(graphs.begin(), graphs.end(), is_nothing)
             ? Status(fail(ErrorCode::kInvalidArgument, "no graph is given"))
             : Status();
}

// Checks options that apply to a single graph only, or that must differ between several.
Status check_options(const SaveJob& job) {
  if (job.is_of_one()) {
    return {};
  }
  if (!job.options.test_data.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "recorded inputs belong to one model; save that model alone with its inputs");
  }
  if (!job.options.learn_from.empty() || job.options.learn_from_open != nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "an old checkpoint belongs to one graph; learn the map of each graph separately, "
                "and save the models together with these maps");
  }
  if (job.options.plan.layout == Layout::kInline) {
    return fail(ErrorCode::kInvalidArgument,
                "models with inline weights cannot share weights: choose another layout than "
                "inline, or save the models one by one");
  }
  return {};
}

// Opens the output folder and chooses the data folder. A dry run without a folder only shows the
// mapping, so it reads none.
Status check_target(SaveJob& job) {
  if (job.options.mode == RunMode::kWrite && job.options.write.team == nullptr) {
    TRY_ASSIGN(job.folder, open_output_folder(job.target.folder, job.options.write.sync));
  }
  TRY_ASSIGN(job.target.data_dir,
             choose_data_dir(job.target.folder, job.names, job.target.data_dir,
                             job.options.write.overwrite, job.options.plan.written_layout(),
                             job.options.plan.data_name));
  return {};
}

// --- inputs ------------------------------------------------------------------------------------

struct LoadGraph {
  const SaveOptions& options;

  Result<Model> operator()(const fs::path& path) const {
    TRY_ASSIGN(auto model, Model::load(path));
    return (*this)(std::move(model));
  }
  Result<Model> operator()(Model model) const {
    if (!options.source_dir.empty()) {
      model.set_source_dir(options.source_dir);
    }
    return model;
  }
  Result<Model> operator()(const onnx::ModelProto* proto) const {
    return Model::from_proto(*proto,
                             options.source_dir.empty() ? fs::path(".") : options.source_dir);
  }
};

// Returns the work of loading the graphs, as the number of bytes that are copied in the same time.
std::uint64_t work_of_loading(const Graphs& graphs) {
  constexpr std::uint64_t kCopiedPerParsed = 16;
  std::uint64_t work = 0;
  for (const GraphToSave& graph : graphs) {
    if (std::holds_alternative<const onnx::ModelProto*>(graph.graph)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    std::error_code error;
    const auto* const path = std::get_if<fs::path>(&graph.graph);
    const std::uintmax_t bytes = path == nullptr ? 0 : fs::file_size(*path, error);
    work += error ? 0 : bytes * kCopiedPerParsed;
  }
  return work;
}

Status add_derived(SaveJob& job) {
  return add_derived_tensors(*job.checkpoint, job.options.mapping.derived,
                             job.options.open.max_expand);
}

// Graphs and checkpoint are independent, so they are opened at the same time. For 100,000 tensors
// this shortens a dry run by a tenth to a fifth.
Status open_inputs(SaveJob& job, SaveInputs& inputs) {
  std::vector<std::optional<Model>> models(inputs.graphs.size());
  const std::size_t tasks = models.size() + (inputs.paths.empty() ? 0 : 1);
  TRY(parallel_tasks(
      tasks, thread_count(job.options.open.threads, work_of_loading(inputs.graphs)),
      [&](std::size_t input, int) -> Status {
        if (input < models.size()) {
          TRY_ASSIGN(models[input],
                     std::visit(LoadGraph{job.options}, std::move(inputs.graphs[input].graph)));
          return {};
        }
        TRY_ASSIGN(job.checkpoint,
                   open_checkpoint(inputs.paths, open_options(job.options, job.target.folder)));
        return {};
      }));
  if (inputs.checkpoint) {
    job.checkpoint = std::move(inputs.checkpoint);
  }
  for (std::optional<Model>& model : models) {
    job.models.push_back(*std::move(model));
  }
  if (!job.checkpoint) {
    return {};
  }
  for (const Model& model : job.models) {
    list_parts_for(model.facts(), *job.checkpoint);
  }
  return add_derived(job);
}

// Other shapes are the model's affair; other types would be a mistake, but for plain bytes.
Status check_tensor(const ExternalTensor& entry, const TensorView& tensor) {
  const auto nbytes = contiguous_nbytes(tensor.dtype, tensor.shape);
  const bool has_type =
      tensor.dtype == DType::kUInt8 || onnx_data_type(tensor.dtype) == entry.data_type;
  if (has_type && nbytes && *nbytes == entry.length) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} {} takes {} bytes, but tensor {} in memory, {} {}, is another type or "
                  "size",
                  onnx_type_name(entry.data_type), shape_text(entry.dims), entry.length,
                  entry.offset, torch_name(tensor.dtype), shape_text(tensor.shape)));
}

// Appends the data of models in memory to the keys.
Status add_data_in_memory(SaveJob& job, std::vector<ProvidedTensor> tensors) {
  for (const Model& model : job.models) {
    for (const ExternalTensor& entry : model.external_tensors()) {
      if (is_in_memory(model, entry) && entry.offset < tensors.size() &&
          tensors[entry.offset].info.name.empty()) {
        tensors[entry.offset].info.name = entry.name;
      }
    }
  }
  if (job.options.plan.quantize) {
    TRY_ASSIGN(job.own, append_own_weights(job.models, tensors));
  }
  TRY_ASSIGN(const auto given, provided_checkpoint(std::move(tensors), {}, ProvidedNames::kAny));
  CheckpointAccess::append_existing(*job.checkpoint, given);
  for (const Model& model : job.models) {
    for (const ExternalTensor& entry : model.external_tensors()) {
      if (is_in_memory(model, entry)) {
        const std::string where = "initializer " + quote(entry.name);
        TRY_ASSIGN_IN(where, const auto tensor,
                      CheckpointAccess::given_tensor(*job.checkpoint, entry.offset));
        TRY_IN(where, check_tensor(entry, job.checkpoint->tensors()[tensor]));
      }
    }
  }
  return {};
}

// A model may replace an old model, but never the checkpoint that is being read.
Status check_is_no_input(const fs::path& model, const Checkpoint& checkpoint) {
  std::error_code ignored;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (!file.path.empty() &&
        fs::equivalent(model, file.path, ignored)) {  // opens nothing: it may be a device
      return fail(
          ErrorCode::kInvalidArgument,
          model.string() + ": is the checkpoint; choose another name or folder for the model");
    }
  }
  return {};
}

// To keep codes, there must be some.
Status check_has_codes(const SaveJob& job) {
  const auto& quantize = job.options.plan.quantize;
  if (!quantize || quantize->keep == KeepCodes::kNo) {
    return {};
  }
  for (const TensorView& tensor : job.checkpoint->tensors()) {
    if (CheckpointAccess::quantized(*job.checkpoint, tensor.storage)) {
      return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "there are no codes to keep: none of the weights is quantized; choose int4 or int8, "
              "or leave out the quantization");
}

}  // namespace

std::string graph_name(const Model& model) {
  return model.path().empty() ? "the given graph" : model.path().string();
}

OpenOptions open_options(const SaveOptions& options, const fs::path& folder) {
  OpenOptions open = options.open;
  if (open.scratch_dir == OpenOptions{}.scratch_dir) {
    // Beside the output, because /tmp may be small or memory.
    open.scratch_dir = nearest_existing_folder(folder);
  }
  return open;
}

Result<SaveJob> start_job(const SaveTarget& target, SaveInputs inputs, const SaveOptions& options) {
  SaveJob job{target, options};
  for (const GraphToSave& graph : inputs.graphs) {
    job.names.push_back(graph.model_name);
  }
  if (options.mode == RunMode::kWrite && job.target.folder.empty()) {
    job.target.folder = ".";
  }
  TRY(check_graphs(inputs.graphs));
  TRY(check_options(job));
  TRY(check_option_rules(options.plan, options.write, options.mapping.casts));
  TRY(check_target(job));
  TRY(open_inputs(job, inputs));
  for (std::size_t i = 0; job.checkpoint && i < job.names.size(); ++i) {
    TRY(check_is_no_input(job.target.folder / job.names[i], *job.checkpoint));
  }
  if (!job.checkpoint) {
    job.checkpoint = CheckpointAccess::make_empty();
  }
  TRY(check_has_codes(job));
  TRY(add_data_in_memory(job, std::move(inputs.tensors)));
  return job;
}

}  // namespace onnx_external
