// Maps one graph, or several that share a checkpoint.
#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/leftovers.h"
#include "mapping/map_steps.h"
#include "mapping/own_prefix.h"
#include "mapping/refusals.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

// The names that options may give.
struct GraphTerms {
  NameSet slots;
  NameSet inputs;
  NameSet data;  // initializers and constants

  explicit GraphTerms(const GraphFacts& facts) {
    for (const Slot& slot : facts.slots) {
      slots.insert(slot.name);
      if (slot.has_data) {
        data.insert(slot.name);
      }
    }
    for (const ConstantTensor& constant : facts.constants) {
      data.insert(constant.name);
    }
    inputs.insert(facts.graph_inputs.begin(), facts.graph_inputs.end());
  }
};

// One graph and what is known of it so far. The task refers to the options.
struct GraphState {
  const GraphToMap& graph;
  MappingOptions options;
  std::optional<MappingTask> task = {};
  KeyPrefix key_prefix = {};
  Mapping mapping = {};
};

bool is_for(const MapEntry& entry, std::string_view model) {
  return entry.model.empty() || entry.model == model;
}

// --- options -----------------------------------------------------------------------------------

// Checks whether the names that options give exist in any of the graphs.
class KnownTerms {
 public:
  explicit KnownTerms(std::span<const GraphToMap> graphs) {
    for (const GraphToMap& graph : graphs) {
      terms_.emplace_back(*graph.facts);
      models_.insert(graph.name);
    }
  }

  Status check(const MappingOptions& options) const {
    if (terms_.size() == 1) {
      return {};
    }
    for (const MapEntry& entry : options.map) {
      if (!entry.model.empty() && !models_.contains(entry.model)) {
        return fail(ErrorCode::kNotFound, "map " + quote(entry.slot) + ": it is for " +
                                              quote(entry.model) +
                                              ", which is not one of the models");
      }
      TRY(check_name("map " + quote(entry.slot), "slot", entry.slot, &GraphTerms::slots));
    }
    for (const std::string& input : options.inputs) {
      TRY(check_name("inputs", "input", input, &GraphTerms::inputs));
    }
    for (const std::string& name : options.keep) {
      TRY(check_name("to keep", "tensor with data called", name, &GraphTerms::data));
    }
    return {};
  }

  // Returns the options that apply to one of several graphs. A single graph gets all options, and
  // its rules report names that it lacks.
  MappingOptions options_for(const GraphToMap& graph, std::size_t number,
                             const MappingOptions& all) const {
    if (terms_.size() == 1) {
      return graph.name.empty() ? all : options_for_model(all, graph.name);
    }
    const GraphTerms& known = terms_[number];
    MappingOptions options = options_for_model(all, graph.name);
    std::erase_if(options.map, [&](const MapEntry& entry) {
      return entry.model.empty() && !known.slots.contains(entry.slot);
    });
    std::erase_if(options.inputs,
                  [&](const std::string& name) { return !known.inputs.contains(name); });
    std::erase_if(options.keep,
                  [&](const std::string& name) { return !known.data.contains(name); });
    return options;
  }

 private:
  Status check_name(const std::string& where, const char* what, const std::string& name,
                    NameSet GraphTerms::*names) const {
    const bool is_known = std::any_of(terms_.begin(), terms_.end(), [&](const GraphTerms& terms) {
      return (terms.*names).contains(name);
    });
    return is_known ? Status()
                    : fail(ErrorCode::kNotFound, where + ": no graph has a" +
                                                     (*what == 'i' ? "n " : " ") + what + " " +
                                                     quote(name));
  }

  std::deque<GraphTerms> terms_;
  NameSet models_;
};

// --- keys --------------------------------------------------------------------------------------

// A key that one graph uses counts as used for all graphs, and so do the keys of graphs that are
// not mapped in this call.
void share_used_keys(std::deque<GraphState>& graphs,
                     const std::vector<std::string>& used_elsewhere) {
  const MappingTask& first = *graphs.front().task;
  std::vector<bool> used(first.key_used.size());
  for (const std::string& name : used_elsewhere) {
    if (const auto key = first.key_by_name.find(name)) {
      used[*key] = true;
    }
  }
  for (const GraphState& graph : graphs) {
    std::transform(used.begin(), used.end(), graph.task->key_used.begin(), used.begin(),
                   std::logical_or<>());
  }
  for (GraphState& graph : graphs) {
    graph.task->key_used = used;
  }
}

// The unused modules of all graphs that have one of the keys.
std::vector<UnusedModule> modules_of_keys(const std::deque<GraphState>& graphs,
                                          const MappingKeys& keys,
                                          const std::vector<std::uint32_t>& of_modules) {
  std::vector<UnusedModule> modules;
  for (const GraphState& graph : graphs) {
    for (const UnusedModule& module : graph.mapping.unused_modules) {
      const bool has_key =
          std::any_of(of_modules.begin(), of_modules.end(), [&](std::uint32_t key) {
            const std::string& name = keys.keys[key].name;
            return name.starts_with(module.name) &&
                   (module.name.empty() || name[module.name.size()] == '.');
          });
      if (has_key && std::find(modules.begin(), modules.end(), module) == modules.end()) {
        modules.push_back(module);
      }
    }
  }
  return modules;
}

// Gives all graphs the same verdicts on keys: the first in the order of KeyVerdict.
void share_key_verdicts(std::deque<GraphState>& graphs, const MappingKeys& keys) {
  if (graphs.size() == 1) {
    return;
  }
  Mapping shared;
  shared.keys = graphs.front().mapping.keys;
  for (const GraphState& graph : graphs) {
    for (std::size_t key = 0; key < shared.keys.size(); ++key) {
      shared.keys[key] =
          std::min(shared.keys[key], graph.mapping.keys[key],
                   [](const MappedKey& a, const MappedKey& b) { return a.verdict < b.verdict; });
    }
  }
  shared.unused_modules =
      modules_of_keys(graphs, keys, shared.keys_with({KeyVerdict::kUnusedModule}));
  for (GraphState& graph : graphs) {
    graph.mapping.keys = shared.keys;
    graph.mapping.unused_modules = shared.unused_modules;
  }
}

// Calls a step for each graph. If there are several, errors begin with the name of the graph.
template <typename Step>
Status for_each(std::deque<GraphState>& graphs, const Step& step) {
  for (GraphState& graph : graphs) {
    if (Status done = step(graph); !done) {
      return graphs.size() == 1 ? done : fail_in(graph.graph.name, std::move(done).error());
    }
  }
  return {};
}

// Looking at the slots of one graph may show that its data has the values of a key, which then
// counts for all graphs. So the slots of several graphs are judged twice.
Status judge(std::deque<GraphState>& graphs, const MappingKeys& keys) {
  TRY(for_each(graphs, [](GraphState& graph) {
    return judge_keys(*graph.task, graph.key_prefix, graph.graph.evidence, graph.mapping);
  }));
  const int passes = graphs.size() == 1 ? 1 : 2;
  for (int pass = 0; pass < passes; ++pass) {
    share_key_verdicts(graphs, keys);
    TRY(for_each(graphs, [](GraphState& graph) {
      return judge_slots(*graph.task, graph.key_prefix, graph.graph.evidence, graph.mapping);
    }));
  }
  share_key_verdicts(graphs, keys);
  return {};
}

Status check_given_prefix(const std::deque<GraphState>& graphs) {
  std::vector<NamedTask> named;
  for (const GraphState& graph : graphs) {
    named.push_back({graph.graph.name, &*graph.task});
  }
  return check_prefix_of_all(named);
}

Status check_all_refusals(const std::deque<GraphState>& graphs) {
  std::vector<JudgedGraph> judged;
  for (const GraphState& graph : graphs) {
    const std::string_view name = graph.graph.name;
    judged.push_back(
        {graphs.size() == 1 ? std::string_view() : name, &*graph.task, &graph.mapping});
  }
  return check_refusals(judged);
}

}  // namespace

MappingOptions options_for_model(MappingOptions options, std::string_view name) {
  std::erase_if(options.map, [&](const MapEntry& entry) { return !is_for(entry, name); });
  return options;
}

Result<std::vector<Mapping>> map_graphs_beside(std::span<const GraphToMap> graphs,
                                               const MappingKeys& keys,
                                               const MappingOptions& options,
                                               const OthersOfSet& others) {
  if (options.unmatched == Unmatched::kKeep && graphs.size() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                "keys without a slot can become initializers only if a single model is saved; save "
                "the model that should contain them separately");
  }
  const KnownTerms terms(graphs);
  TRY(terms.check(options));
  std::deque<GraphState> states;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    states.push_back({graphs[i], terms.options_for(graphs[i], i, options)});
  }
  const bool is_one_of_several = others.exist || graphs.size() > 1;
  TRY(for_each(states, [&](GraphState& state) -> Status {
    TRY_ASSIGN(auto task, make_task(*state.graph.facts, keys, state.options));
    state.task.emplace(std::move(task));
    state.task->own_name = is_one_of_several ? own_name(state.graph.name) : "";
    TRY_ASSIGN(state.key_prefix, apply_rules(state.graph.evidence, *state.task));
    return {};
  }));
  TRY(check_given_prefix(states));
  share_used_keys(states, others.used_keys);
  TRY(judge(states, keys));
  TRY(check_all_refusals(states));
  std::vector<Mapping> mappings;
  for (GraphState& state : states) {
    complete_mapping(*state.task, state.key_prefix, state.mapping);
    mappings.push_back(std::move(state.mapping));
  }
  return mappings;
}

Result<std::vector<Mapping>> map_graphs(std::span<const GraphToMap> graphs, const MappingKeys& keys,
                                        const MappingOptions& options) {
  return map_graphs_beside(graphs, keys, options, {});
}

Result<Mapping> map_tensors(const GraphFacts& graph, const MappingKeys& keys,
                            const MappingOptions& options, const MappingEvidence& evidence) {
  const GraphToMap alone{"", &graph, evidence};
  TRY_ASSIGN(auto mappings, map_graphs({&alone, 1}, keys, options));
  return std::move(mappings.front());
}

}  // namespace onnx_external
