// Measures the time to map N keys to N slots, for the naming schemes of real checkpoints.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

std::string layer_name(std::int64_t i) {
  static constexpr const char* kLeaves[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                            "mlp.up_proj.weight", "input_layernorm.weight"};
  return "layers." + std::to_string(i / 4) + "." + kLeaves[i % 4];
}

std::string underscored(std::string name) {
  for (char& c : name) {
    c = c == '.' ? '_' : c;
  }
  return name;
}

struct Problem {
  GraphFacts graph;
  MappingKeys keys;
};

Problem make_problem(std::int64_t count, const std::string& key_prefix, bool underscores) {
  Problem problem;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = layer_name(i);
    Slot slot;
    slot.name = underscores ? underscored(name) : name;
    slot.kind = SlotKind::kUndefinedName;
    slot.elem_type = onnx_data_type(DType::kFloat32);
    slot.shape = SymbolicShape{64, i % 4 == 3 ? 1 : 64};
    slot.consumer_count = 1;
    problem.graph.slots.push_back(slot);
    MappingKey key;
    key.name = key_prefix + name;
    key.shape = {64, i % 4 == 3 ? 1 : 64};
    problem.keys.keys.push_back(key);
  }
  problem.graph.ir_version = 8;
  return problem;
}

void run(benchmark::State& state, const std::string& key_prefix, bool underscores) {
  const Problem problem = make_problem(state.range(0), key_prefix, underscores);
  for (auto _ : state) {
    const auto mapping = map_tensors(problem.graph, problem.keys, {});
    if (!mapping || mapping->pairs.size() != problem.keys.keys.size()) {
      std::abort();
    }
    benchmark::DoNotOptimize(mapping->pairs.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void bm_equal_names(benchmark::State& state) {
  run(state, "", false);
}
void bm_prefix_removed(benchmark::State& state) {
  run(state, "module.model.", false);
}
void bm_prefix_removed_underscored(benchmark::State& state) {
  run(state, "module.model.", true);
}

// --- hostile names
// Each family is measured at N and 2 N. The time must be proportional to the number of names.

Problem problem_of(const std::vector<std::string>& slots, const std::vector<std::string>& keys) {
  Problem problem;
  for (const std::string& name : slots) {
    Slot& slot = problem.graph.slots.emplace_back();
    slot.name = name;
    slot.kind = SlotKind::kUndefinedName;
    slot.elem_type = onnx_data_type(DType::kFloat32);
    slot.shape = SymbolicShape{1};
    slot.consumer_count = 1;
  }
  for (const std::string& name : keys) {
    MappingKey& key = problem.keys.keys.emplace_back();
    key.name = name;
    key.shape = {1};
  }
  problem.graph.ir_version = 8;
  return problem;
}

void run_hostile(benchmark::State& state, const Problem& problem) {
  for (auto _ : state) {
    const auto mapping = map_tensors(problem.graph, problem.keys, {});
    benchmark::DoNotOptimize(mapping.has_value());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

std::string repeated(std::string_view component, std::int64_t times) {
  std::string text;
  for (std::int64_t i = 0; i < times; ++i) {
    text += component;
  }
  return text;
}

// Returns the number written in dots and underscores, so that all names are equal once dots and
// underscores count as equal.
std::string twin(std::int64_t number) {
  std::string name;
  for (unsigned bit = 0; bit < 20; ++bit) {
    name += ((number >> bit) & 1) != 0 ? "a." : "a_";
  }
  return name + "z";
}

void bm_shared_suffixes(benchmark::State& state) {
  constexpr std::int64_t kDepth = 40;
  std::vector<std::string> slots;
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < kDepth; ++i) {
    slots.push_back(repeated("a.", i) + "a");
  }
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    keys.push_back(std::to_string(i) + "." + slots.back());
  }
  run_hostile(state, problem_of(slots, keys));
}

void bm_nested_prefixes(benchmark::State& state) {
  std::vector<std::string> slots;
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    slots.push_back(repeated("p.", i % 37) + "w" + std::to_string(i));
    keys.push_back(repeated("p.", i % 60) + "w" + std::to_string(i));
  }
  run_hostile(state, problem_of(slots, keys));
}

void bm_many_ties(benchmark::State& state) {
  std::vector<std::string> slots;
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    slots.push_back(twin(i));
    keys.push_back(std::to_string(i) + "." + twin(2 * i));
  }
  run_hostile(state, problem_of(slots, keys));
}

BENCHMARK(bm_shared_suffixes)->Arg(10'000)->Arg(20'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_nested_prefixes)->Arg(10'000)->Arg(20'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_many_ties)->Arg(10'000)->Arg(20'000)->Unit(benchmark::kMillisecond);

BENCHMARK(bm_equal_names)->Arg(1'000)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_prefix_removed)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_prefix_removed_underscored)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace onnx_external
