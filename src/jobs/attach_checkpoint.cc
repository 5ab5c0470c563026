// Saves graphs with the weights of a checkpoint.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/try.h"
#include "jobs/save_job.h"
#include "mapping/graph_parts.h"
#include "onnx/graph_facts.h"
#include "onnx_external/evidence.h"
#include "onnx_external/learn.h"
#include "onnx_external/save_external.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Paths = std::span<const fs::path>;

// The old checkpoint may be the same state dict in another type of file, without the key. If it has
// the keys of the derived tensors, these are also added to it.
Result<Checkpoint> open_old(const SaveJob& job) {
  OpenOptions open = open_options(job.options, job.target.folder);
  open.variant.clear();  // of the new one
  auto old = open_checkpoint(job.options.learn_from, open);
  if (!old && old.error().code == ErrorCode::kNotFound && !open.key.empty()) {
    open.key.clear();
    old = open_checkpoint(job.options.learn_from, open);
  }
  const Status derived =
      old ? add_derived_tensors(*old, job.options.mapping.derived, open.max_expand) : Status();
  if (!derived && derived.error().code != ErrorCode::kNotFound) {
    return fail_in("old checkpoint", derived.error());
  }
  return old;
}

// Keys whose values the graph already holds, as --learn-map found, need no slot.
void add_settled(const MappingKeys& keys, std::span<const std::string> settled, Mapping& mapping) {
  const NameSet names(settled.begin(), settled.end());
  for (std::size_t key = 0; key < mapping.keys.size(); ++key) {
    KeyVerdict& verdict = mapping.keys[key].verdict;
    verdict = verdict > KeyVerdict::kTied && names.contains(keys.keys[key].name)
                  ? KeyVerdict::kBaked
                  : verdict;
  }
}

// If all floats are converted to one type, the types of keys do not matter for the mapping. The
// plan rejects slots that state another type.
MappingOptions mapping_options(const SaveOptions& options) {
  MappingOptions mapping = options.mapping;
  mapping.casts = options.plan.dtype ? Casts::kAllow : mapping.casts;
  return mapping;
}

// Learns the map of a single graph from an old checkpoint.
Result<LearnedMap> learn(const SaveJob& job, const MappingOptions& options) {
  std::optional<Checkpoint> opened;
  if (job.options.learn_from_open == nullptr) {
    TRY_ASSIGN(opened, open_old(job));
  }
  const Checkpoint& old = opened ? *opened : *job.options.learn_from_open;
  return learn_map(job.models.front(), old, *job.checkpoint, options, job.options.write.threads,
                   job.options.write.progress);
}

Result<std::vector<Mapping>> map_job(const SaveJob& job, const MappingKeys& keys) {
  MappingOptions options = mapping_options(job.options);
  std::vector<GraphToMap> graphs;
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    const Model& model = job.models[i];
    graphs.push_back({job.names[i], &model.facts(), mapping_evidence(model, *job.checkpoint)});
  }
  if (job.options.learn_from_open == nullptr && job.options.learn_from.empty()) {
    return map_graphs(graphs, keys, options);
  }
  options = options_for_model(std::move(options), job.names.front());
  TRY_ASSIGN(const auto learned, learn(job, options));
  TRY_ASSIGN(auto mappings, map_graphs(graphs, keys, with_learned(options, learned)));
  add_settled(keys, learned.settled, mappings.front());
  return mappings;
}

Result<SaveReport> save_with_checkpoint(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options) {
  TRY_ASSIGN(auto job, start_job(target, std::move(inputs), options));
  TRY_ASSIGN(const auto keys, mapping_keys(*job.checkpoint));
  auto mappings = map_job(job, keys);
  if (!mappings) {
    return job.is_of_one() ? fail_in(graph_name(job.models.front()), std::move(mappings).error())
                           : fail(std::move(mappings).error());
  }
  TRY(plan_job(job, *mappings));
  return carry_out(std::move(job), keys, *mappings);
}

}  // namespace

Result<SaveReport> attach(const SaveTarget& target, SaveInputs inputs, const SaveOptions& options) {
  const NotedPhase noted(options);
  return noted.explain(save_with_checkpoint(target, std::move(inputs), noted.options()),
                       target.folder);
}

Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target, Paths torch_load_paths,
                                                  std::span<const GraphToSave> graphs,
                                                  const SaveOptions& options) {
  if (torch_load_paths.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no checkpoint is given; use relayout_model() to change the layout of a model's "
                "own weights");
  }
  return attach(target, {{graphs.begin(), graphs.end()}, torch_load_paths}, options);
}

Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                  std::span<const GraphToSave> graphs,
                                                  const SaveOptions& options) {
  return attach(target, {{graphs.begin(), graphs.end()}, {}, std::move(checkpoint)}, options);
}

Result<std::string> map_template_text(Paths torch_load_paths, const fs::path& graph_path,
                                      const SaveOptions& options, const ErrorDetails* refusal) {
  TRY_ASSIGN(const auto model, Model::load(graph_path));
  TRY_ASSIGN(auto checkpoint, open_checkpoint(torch_load_paths, options.open));
  list_parts_for(model.facts(), checkpoint);
  TRY(add_derived_tensors(checkpoint, options.mapping.derived, options.open.max_expand));
  TRY_ASSIGN(const auto keys, mapping_keys(checkpoint));
  const MapTemplate found = map_template(model.facts(), keys, mapping_options(options), refusal);
  if (found.open.empty()) {
    return fail(ErrorCode::kNotFound, graph_path.string() + ": has no open slots");
  }
  return map_file_text(found.map, found.open, options.mapping.derived);
}

// --- one model: a set of one -------------------------------------------------------------------

Result<SaveReport> save_model_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const onnx::ModelProto& onnx_model,
                                                 const SaveOptions& options) {
  const GraphToSave graph{model_location, &onnx_model};
  return save_graphs_with_external_data({.folder = basepath, .data_dir = initializer_location},
                                        torch_load_paths, {&graph, 1}, options);
}

Result<SaveReport> save_graph_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const fs::path& graph_path,
                                                 const SaveOptions& options) {
  const GraphToSave graph{model_location, graph_path};
  return save_graphs_with_external_data({.folder = basepath, .data_dir = initializer_location},
                                        torch_load_paths, {&graph, 1}, options);
}

Result<SaveReport> save_model_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                 Model model, const SaveOptions& options) {
  SaveInputs inputs;
  inputs.checkpoint = std::move(checkpoint);
  inputs.graphs.push_back({target.model_name, std::move(model)});
  return attach(target, std::move(inputs), options);
}

Result<SaveReport> save(const SaveRequest& request) {
  const SaveTarget target{.folder = request.folder, .data_dir = request.data_dir};
  const GraphToSave graph{request.model_name, request.graph};
  return request.checkpoint.empty() ? relayout_models(target, {&graph, 1}, request.options)
                                    : save_graphs_with_external_data(target, request.checkpoint,
                                                                     {&graph, 1}, request.options);
}

}  // namespace onnx_external
