// Saves of one model: sets of one.
#include <utility>

#include "jobs/save_job.h"

namespace onnx_external {

namespace fs = std::filesystem;

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

Result<SaveReport> relayout_model(const SaveTarget& target, const fs::path& model_path,
                                  const SaveOptions& options) {
  return relayout(target, {{{target.model_name, model_path}}}, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, const onnx::ModelProto& model,
                                  const SaveOptions& options) {
  return relayout(target, {{{target.model_name, &model}}}, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, Model model,
                                  const SaveOptions& options) {
  SaveInputs inputs;
  inputs.graphs.push_back({target.model_name, std::move(model)});
  return relayout(target, std::move(inputs), options);
}

Result<SaveReport> save(const SaveRequest& request) {
  const SaveTarget target{.folder = request.folder, .data_dir = request.data_dir};
  const GraphToSave graph{request.model_name, request.graph};
  return request.checkpoint.empty() ? relayout_models(target, {&graph, 1}, request.options)
                                    : save_graphs_with_external_data(target, request.checkpoint,
                                                                     {&graph, 1}, request.options);
}

}  // namespace onnx_external
