#include "evidence/learn_task.h"

#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "evidence/name_proof.h"
#include "mapping/name_refinement.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

Status list_keys(const MappingOptions& options, LearnTask& task) {
  std::vector<std::unique_ptr<RE2>> ignored;
  for (const std::string& pattern : options.ignore) {
    ignored.push_back(std::make_unique<RE2>(pattern, RE2::Quiet));
    if (!ignored.back()->ok()) {
      return fail(ErrorCode::kInvalidArgument,
                  "ignore " + quote(pattern) + ": " + ignored.back()->error());
    }
  }
  NameSet given;
  for (const MapEntry& entry : options.map) {
    given.insert(entry.key);
  }
  const std::vector<TensorView>& tensors = task.old.tensors();
  task.key_of_refined.reserve(tensors.size());
  for (std::uint32_t key = 0; key < tensors.size(); ++key) {
    const std::string& name = tensors[key].name;
    task.names.push_back(name);
    task.given.push_back(given.contains(name));
    task.usable.push_back((!options.prefix || name.starts_with(*options.prefix)) &&
                          std::none_of(ignored.begin(), ignored.end(), [&](const auto& pattern) {
                            return RE2::PartialMatch(name, *pattern);
                          }));
    task.key_of_refined.emplace(canonical_name(name), key);
  }
  return {};
}

// A single number is a shape or a counter, unless it is a fraction.
bool may_be_weight(const LearnTask& task, std::uint32_t tensor) {
  return onnx_is_floating(task.graph_tensors[tensor].data_type()) || task.elements_of(tensor) > 1;
}

// Skips slots that the options exclude, and their data unless other slots share it.
void list_slots(const MappingOptions& options, LearnTask& task) {
  NameSet left_alone(options.keep.begin(), options.keep.end());
  for (const MapEntry& entry : options.map) {
    left_alone.insert(entry.slot);
  }
  task.wanted.assign(task.graph_tensors.size(), false);
  task.has_slot.assign(task.graph_tensors.size(), false);
  for (std::uint32_t slot = 0; slot < task.graph.slots.size(); ++slot) {
    if (!task.tensor_of_slot[slot]) {
      continue;
    }
    const std::uint32_t tensor = *task.tensor_of_slot[slot];
    task.has_slot[tensor] = true;
    if (!left_alone.contains(task.graph.slots[slot].name) && may_be_weight(task, tensor)) {
      task.slots.push_back(slot);
      task.wanted[tensor] = true;
    }
  }
  for (std::uint32_t i = 0; i < task.graph_tensors.size(); ++i) {
    task.wanted[i] = task.wanted[i] || (!task.has_slot[i] && may_be_weight(task, i) &&
                                        !left_alone.contains(task.graph_tensors[i].shown_name()));
  }
}

void list_readers(LearnTask& task) {
  NameMap<std::uint64_t> merged;
  NameSet identities;
  for (const Slot& slot : task.graph.slots) {
    if (slot.kind == SlotKind::kIdentityOutput) {
      ++merged[slot.merged_into];
      identities.insert(slot.name);
    }
  }
  for (const Slot& slot : task.graph.slots) {
    const auto found = merged.find(slot.name);
    const std::uint64_t less = found == merged.end() ? 0 : found->second;
    task.readers.push_back(slot.consumer_count -
                           std::min<std::uint64_t>(less, slot.consumer_count));
  }
  for (const onnx::NodeProto& node : task.model.proto().graph().node()) {
    const bool is_slot = node.output_size() == 1 && identities.contains(node.output(0));
    for (int i = 0; !is_slot && i < node.input_size(); ++i) {
      task.users.emplace(node.input(i), node.name());
    }
  }
}

void list_open_slots(LearnTask& task) {
  for (std::uint32_t slot = 0; slot < task.graph.slots.size(); ++slot) {
    if (task.tensor_of_slot[slot]) {
      continue;
    }
    const std::string name = canonical_name(task.graph.slots[slot].name);
    task.open_names.insert(name);
    task.open_endings.insert(name);
    for (const std::size_t place : refined_boundaries(name)) {
      task.open_endings.insert(name.substr(place));
    }
  }
}

}  // namespace

std::string_view LearnTask::user_of(std::uint32_t slot) const {
  const auto user = users.find(graph.slots[slot].name);
  const bool is_one = readers[slot] == 1 && graph.slots[slot].graph == 0;
  return is_one && user != users.end() ? user->second : std::string_view();
}

bool LearnTask::has_identities(std::uint32_t slot) const {
  const onnx::ModelProto& proto = model.proto();
  const auto user = users.find(graph.slots[slot].name);
  // Since torch 2 there is another exporter, which names nodes differently.
  return proto.producer_name() == "pytorch" &&
         (proto.producer_version().starts_with("1.") ||
          (user != users.end() && user->second.starts_with('/')));
}

bool LearnTask::meets_open_slot(std::uint32_t key) const {
  const std::string name = canonical_name(names[key]);
  const std::vector<std::size_t> places = refined_boundaries(name);
  return open_endings.contains(name) ||
         std::any_of(places.begin(), places.end(),
                     [&](std::size_t place) { return open_names.contains(name.substr(place)); });
}

std::uint64_t LearnTask::elements_of(std::uint32_t graph_tensor) const {
  return element_count(graph_tensors[graph_tensor].dims()).value_or(0);
}

std::uint64_t LearnTask::elements_of_key(std::uint32_t key) const {
  return element_count(old.tensors()[key].shape).value_or(0);
}

Result<LearnTask> make_learn_task(const Model& model, const Checkpoint& old,
                                  const MappingOptions& options) {
  LearnTask task{
      model, model.facts(), old, graph_tensors(model), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}};
  task.tensor_of_slot = tensor_of_slots(task.graph, task.graph_tensors);
  TRY(list_keys(options, task));
  list_slots(options, task);
  list_readers(task);
  list_open_slots(task);
  return task;
}

}  // namespace onnx_external
