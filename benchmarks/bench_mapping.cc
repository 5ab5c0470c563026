// How long the mapping takes: N keys against N slots, in the forms that checkpoints come in.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>

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

void bm_equal_names(benchmark::State& state) { run(state, "", false); }
void bm_prefix_removed(benchmark::State& state) { run(state, "module.model.", false); }
void bm_prefix_removed_underscored(benchmark::State& state) { run(state, "module.model.", true); }

BENCHMARK(bm_equal_names)->Arg(1'000)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_prefix_removed)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_prefix_removed_underscored)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace onnx_external
