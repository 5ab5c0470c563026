#include "onnx_external/save_external.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/name_map.h"
#include "base/parallel.h"
#include "base/try.h"
#include "jobs/save_job.h"
#include "onnx_external/evidence.h"
#include "onnx_external/learn.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Paths = std::span<const fs::path>;

// To load a graph, in bytes that are copied in the same time.
template <typename Given>
std::uint64_t work_of_loading(const Given& graph) {
  constexpr std::uint64_t kCopiedPerParsed = 16;
  if constexpr (std::is_same_v<Given, fs::path>) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(graph, error);
    return error ? 0 : bytes * kCopiedPerParsed;
  } else {
    return std::numeric_limits<std::uint64_t>::max();
  }
}

// The model and the checkpoint are independent, so they are opened at the same time. For
// 100,000 tensors this shortens a dry run by a tenth to a fifth.
template <typename Given>
Status open_inputs(SaveJob& job, Paths paths, const Given& graph) {
  enum Input { kModel, kCheckpoint, kInputs };
  return parallel_tasks(
      kInputs, thread_count(job.options.open.threads, work_of_loading(graph)),
      [&](std::size_t input, int) -> Status {
        if (input == kModel) {
          TRY_ASSIGN(job.model, given_model(graph, job.options));
        } else {
          TRY_ASSIGN(job.checkpoint,
                     open_checkpoint(paths, open_options(job.options, job.target.folder)));
          TRY(add_derived_tensors(*job.checkpoint, job.options.mapping.derived,
                                  job.options.open.max_expand));
        }
        return {};
      });
}

// The old checkpoint may be the same state dict in another kind of file, without the key. If it has
// the keys of the derived tensors, it gets these, too.
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
  for (const std::uint32_t key : mapping.unmatched_keys) {
    if (names.contains(keys.keys[key].name)) {
      mapping.baked_keys.push_back(key);
    }
  }
  std::vector<std::uint32_t>& baked = mapping.baked_keys;
  std::sort(baked.begin(), baked.end());
  baked.erase(std::unique(baked.begin(), baked.end()), baked.end());
}

Result<Mapping> map_job(const SaveJob& job, const MappingKeys& keys) {
  const MappingOptions given =
      options_for_model(mapping_options(job.options), job.target.model_name);
  const MappingEvidence evidence = mapping_evidence(*job.model, *job.checkpoint);
  const Checkpoint* old = job.options.learn_from_open;
  if (old == nullptr && job.options.learn_from.empty()) {
    return map_tensors(job.model->facts(), keys, given, evidence);
  }
  std::optional<Checkpoint> opened;
  if (old == nullptr) {
    TRY_ASSIGN(opened, open_old(job));
    old = &*opened;
  }
  TRY_ASSIGN(const auto learned, learn_map(*job.model, *old, *job.checkpoint, given,
                                           job.options.write.threads, job.options.write.progress));
  TRY_ASSIGN(auto mapping,
             map_tensors(job.model->facts(), keys, with_learned(given, learned), evidence));
  add_settled(keys, learned.settled, mapping);
  return mapping;
}

// Decides which key fills which slot, and where its bytes go. Writes nothing.
Status decide(SaveJob& job) {
  TRY_ASSIGN(const auto keys, mapping_keys(*job.checkpoint));
  auto mapping = map_job(job, keys);
  if (!mapping) {
    return fail_in(job.graph_name(), std::move(mapping).error());
  }
  return plan_job(job, keys, *mapping);
}

template <typename Given>
Result<SaveReport> attach_checkpoint(SaveJob job, Paths paths, const Given& graph) {
  if (paths.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no checkpoint is given; relayout_model() gives a model's own weights a layout");
  }
  TRY(check_target(job));
  TRY(open_inputs(job, paths, graph));
  TRY(check_is_no_input(job.target.folder / job.target.model_name, *job.checkpoint));
  TRY(decide(job));
  return carry_out(std::move(job));
}

}  // namespace

Result<SaveReport> save_model_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 Paths torch_load_paths,
                                                 const onnx::ModelProto& onnx_model,
                                                 const SaveOptions& options) {
  return attach_checkpoint({{basepath, model_location, initializer_location}, options},
                           torch_load_paths, onnx_model);
}

Result<SaveReport> save_graph_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 Paths torch_load_paths, const fs::path& graph_path,
                                                 const SaveOptions& options) {
  return attach_checkpoint({{basepath, model_location, initializer_location}, options},
                           torch_load_paths, graph_path);
}

Result<SaveReport> save_model_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                 Model model, const SaveOptions& options) {
  SaveJob job{target, options};
  TRY(check_target(job));
  TRY_ASSIGN(job.model, given_model(std::move(model), options));
  job.checkpoint = std::move(checkpoint);
  TRY(check_is_no_input(job.target.folder / job.target.model_name, *job.checkpoint));
  TRY(add_derived_tensors(*job.checkpoint, options.mapping.derived, options.open.max_expand));
  job.checkpoint = with_tensors_of(*job.model, *std::move(job.checkpoint));
  TRY(decide(job));
  return carry_out(std::move(job));
}

Result<std::string> map_template_text(Paths torch_load_paths, const fs::path& graph_path,
                                      const SaveOptions& options, const ErrorDetails* refusal) {
  TRY_ASSIGN(const auto model, Model::load(graph_path));
  TRY_ASSIGN(auto checkpoint, open_checkpoint(torch_load_paths, options.open));
  TRY(add_derived_tensors(checkpoint, options.mapping.derived, options.open.max_expand));
  TRY_ASSIGN(const auto keys, mapping_keys(checkpoint));
  const MapTemplate found = map_template(model.facts(), keys, mapping_options(options), refusal);
  if (found.open.empty()) {
    return fail(ErrorCode::kNotFound, graph_path.string() + ": has no open slots");
  }
  return map_file_text(found.map, found.open, options.mapping.derived);
}

}  // namespace onnx_external
