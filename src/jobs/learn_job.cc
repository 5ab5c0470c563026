// Maps a graph with what an old checkpoint shows about it (SaveOptions::learn_from).
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/try.h"
#include "jobs/save_job.h"
#include "onnx_external/learn.h"

namespace onnx_external {
namespace {

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

}  // namespace

Result<std::vector<Mapping>> map_by_learning(const SaveJob& job, const GraphToMap& graph,
                                             const MappingKeys& keys,
                                             const MappingOptions& options) {
  const MappingOptions given = options_for_model(options, job.names.front());
  TRY_ASSIGN(const auto learned, learn(job, given));
  TRY_ASSIGN(auto mappings, map_graphs({&graph, 1}, keys, with_learned(given, learned)));
  add_settled(keys, learned.settled, mappings.front());
  return mappings;
}

}  // namespace onnx_external
