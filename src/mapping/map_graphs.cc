// Maps one graph, or several that share a checkpoint.
#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/leftover_keys.h"
#include "mapping/leftovers.h"
#include "mapping/map_steps.h"
#include "mapping/own_prefix.h"
#include "mapping/refusals.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

using Keys = std::set<std::uint32_t>;

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
  Leftovers leftovers = {};
};

bool is_for(const MapEntry& entry, std::string_view model) {
  return entry.model.empty() || entry.model == model;
}

// --- options -----------------------------------------------------------------------------------

// Whether any graph has the name that an option gives.
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
                                              quote(entry.model) + ", which is none of the models");
      }
      TRY(check_name("map " + quote(entry.slot), "slot", entry.slot, &GraphTerms::slots));
    }
    for (const std::string& input : options.inputs) {
      TRY(check_name("inputs", "input", input, &GraphTerms::inputs));
    }
    for (const std::string& name : options.keep) {
      TRY(check_name("to keep", "data called", name, &GraphTerms::data));
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

// A key that one graph uses is used for all; so are those of graphs that are not mapped now.
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

void add_all(const std::vector<std::uint32_t>& list, Keys& keys) {
  keys.insert(list.begin(), list.end());
}

// The lists of keys over all graphs. A key is in the first of these lists in which any graph has
// it.
struct SharedLeftovers {
  std::vector<TiedKey> tied;
  Keys tied_keys;
  Keys baked;
  Keys adapters;
  Keys unused;
  Keys unused_module_keys;
  Keys non_weights;
  Keys ignored;

  explicit SharedLeftovers(const std::deque<GraphState>& graphs) {
    for (const GraphState& graph : graphs) {
      const Leftovers& leftovers = graph.leftovers;
      for (const TiedKey& key : leftovers.tied) {
        if (tied_keys.insert(key.key).second) {
          tied.push_back(key);
        }
      }
      add_all(leftovers.baked, baked);
      add_all(leftovers.adapters, adapters);
      add_all(leftovers.unused, unused);
      add_all(leftovers.unused_module_keys, unused_module_keys);
      add_all(leftovers.non_weights, non_weights);
      add_all(leftovers.ignored, ignored);
    }
    std::sort(tied.begin(), tied.end(),
              [](const TiedKey& a, const TiedKey& b) { return a.key < b.key; });
    std::vector<const Keys*> decided{&tied_keys};
    for (Keys* list : {&baked, &adapters, &unused, &unused_module_keys, &non_weights, &ignored}) {
      std::erase_if(*list, [&](std::uint32_t key) {
        return std::any_of(decided.begin(), decided.end(),
                           [&](const Keys* other) { return other->contains(key); });
      });
      decided.push_back(list);
    }
  }
};

std::vector<std::uint32_t> list_of(const Keys& keys) {
  return {keys.begin(), keys.end()};
}

// The modules that have keys in `unused_module_keys`, whichever graph says so.
std::vector<UnusedModule> shared_modules(const std::deque<GraphState>& graphs,
                                         const MappingKeys& keys, const Keys& unused_module_keys) {
  std::vector<UnusedModule> modules;
  for (const GraphState& graph : graphs) {
    for (const UnusedModule& module : graph.leftovers.modules) {
      const bool is_in_unused_module =
          std::any_of(unused_module_keys.begin(), unused_module_keys.end(), [&](std::uint32_t key) {
            const std::string& name = keys.keys[key].name;
            return name.starts_with(module.name) &&
                   (module.name.empty() || name[module.name.size()] == '.');
          });
      if (is_in_unused_module &&
          std::find(modules.begin(), modules.end(), module) == modules.end()) {
        modules.push_back(module);
      }
    }
  }
  return modules;
}

// Gives all graphs the same lists of keys.
void share_leftover_keys(std::deque<GraphState>& graphs, const MappingKeys& keys) {
  if (graphs.size() == 1) {
    return;
  }
  const SharedLeftovers shared(graphs);
  const std::vector<UnusedModule> modules = shared_modules(graphs, keys, shared.unused_module_keys);
  Keys non_weights = shared.non_weights;
  non_weights.insert(shared.baked.begin(), shared.baked.end());
  for (GraphState& graph : graphs) {
    Leftovers& leftovers = graph.leftovers;
    leftovers.tied = shared.tied;
    leftovers.baked = list_of(shared.baked);
    leftovers.adapters = list_of(shared.adapters);
    leftovers.unused = list_of(shared.unused);
    leftovers.unused_module_keys = list_of(shared.unused_module_keys);
    leftovers.non_weights = list_of(non_weights);
    leftovers.ignored = list_of(shared.ignored);
    leftovers.modules = modules;
  }
}

// The same leftovers without the lists of slots and inputs.
Leftovers keys_alone(const Leftovers& all) {
  Leftovers keys;
  keys.unused = all.unused;
  keys.adapters = all.adapters;
  keys.unused_module_keys = all.unused_module_keys;
  keys.non_weights = all.non_weights;
  keys.baked = all.baked;
  keys.ignored = all.ignored;
  keys.tied = all.tied;
  keys.modules = all.modules;
  return keys;
}

// Takes a step for each graph; errors of one of several graphs begin with its name.
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
// counts for all graphs. So the slots of several graphs are looked at twice.
Status find_leftovers(std::deque<GraphState>& graphs, const MappingKeys& keys) {
  TRY(for_each(graphs, [](GraphState& graph) {
    return sort_keys(*graph.task, graph.key_prefix, graph.graph.evidence, graph.leftovers);
  }));
  const int passes = graphs.size() == 1 ? 1 : 2;
  for (int pass = 0; pass < passes; ++pass) {
    share_leftover_keys(graphs, keys);
    TRY(for_each(graphs, [](GraphState& graph) {
      graph.leftovers = keys_alone(graph.leftovers);
      return find_leftover_slots(*graph.task, graph.key_prefix, graph.graph.evidence,
                                 graph.leftovers);
    }));
  }
  share_leftover_keys(graphs, keys);
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
        {graphs.size() == 1 ? std::string_view() : name, &*graph.task, &graph.leftovers});
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
                "keys without a slot cannot become initializers of several models; save the one "
                "that is to have them alone");
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
  TRY(find_leftovers(states, keys));
  TRY(check_all_refusals(states));
  std::vector<Mapping> mappings;
  for (GraphState& state : states) {
    mappings.push_back(make_mapping(*state.task, std::move(state.leftovers), state.key_prefix));
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
