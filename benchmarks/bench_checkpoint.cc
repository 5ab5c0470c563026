// Measures the time to read the metadata of checkpoints: pickles, zip directories and safetensors
// headers.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "checkpoint/naming/torch_names.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/checkpoint.h"
#include "support/legacy_builder.h"
#include "support/pickle_builder.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

std::vector<TestTensor> small_tensors(std::int64_t count) {
  std::vector<TestTensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back({.name = "model.layers." + std::to_string(i) + ".weight",
                       .shape = {2, 2},
                       .bytes = f32({1, 2, 3, 4})});
  }
  return tensors;
}

std::string safetensors_file(std::int64_t count) {
  std::string header = "{";
  for (std::int64_t i = 0; i < count; ++i) {
    header += (i == 0 ? "\"" : ",\"") + ("model.layers." + std::to_string(i)) +
              R"(.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[)" + std::to_string(16 * i) +
              "," + std::to_string(16 * (i + 1)) + "]}";
  }
  header += "}";
  std::string bytes;
  put_le(bytes, header.size(), 8);
  return bytes + header + std::string(static_cast<std::size_t>(16 * count), '\0');
}

void parse_pickle(benchmark::State& state) {
  const std::string bytes = state_dict_pickle(small_tensors(state.range(0)));
  for (auto _ : state) {
    const auto pickle = Pickle::parse(bytes);
    benchmark::DoNotOptimize(pickle->root());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(parse_pickle)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

void name_tensors(benchmark::State& state) {
  const auto pickle = Pickle::parse(state_dict_pickle(small_tensors(state.range(0))));
  for (auto _ : state) {
    const auto named = name_state_dict(*pickle, "");
    benchmark::DoNotOptimize(named->tensors.size());
  }
}
BENCHMARK(name_tensors)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

// Returns a legacy file of tensors with one storage each.
std::string legacy_checkpoint(std::int64_t count) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  std::vector<LegacyBlock> blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string key = std::to_string(94'000'000 + i);
    pickle.string("model.layers." + std::to_string(i) + ".weight");
    put_legacy_tensor(pickle, key, 4, 0, 4);
    blocks.push_back({key, f32({1, 2, 3, 4})});
  }
  return legacy_file(pickle.set_items().stop().bytes(), blocks);
}

// Opens a checkpoint. The time must be proportional to the number of tensors, so the time per
// tensor should stay the same.
void open_file(benchmark::State& state, const std::string& content) {
  const TempDir dir;
  const std::vector<std::filesystem::path> paths{dir.write("checkpoint", content)};
  for (auto _ : state) {
    const auto checkpoint = open_checkpoint(paths);
    if (!checkpoint) {
      state.SkipWithError(checkpoint.error().message.c_str());
      return;
    }
    benchmark::DoNotOptimize(checkpoint->tensors().size());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(content.size()));
  state.counters["per_tensor"] = benchmark::Counter(
      static_cast<double>(state.range(0)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.SetComplexityN(state.range(0));
}

void numbers_of_tensors(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1'000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond)->Complexity();
}

void open_torch_zip(benchmark::State& state) {
  open_file(state, torch_zip(small_tensors(state.range(0))));
}
BENCHMARK(open_torch_zip)->Apply(numbers_of_tensors);

void open_safetensors(benchmark::State& state) {
  open_file(state, safetensors_file(state.range(0)));
}
BENCHMARK(open_safetensors)->Apply(numbers_of_tensors);

void open_torch_legacy(benchmark::State& state) {
  open_file(state, legacy_checkpoint(state.range(0)));
}
BENCHMARK(open_torch_legacy)->Apply(numbers_of_tensors);

// Measures the rate at which a transposed 4096 x 4096 float32 matrix is read from the page cache.
void read_transposed(benchmark::State& state) {
  const TempDir dir;
  const std::int64_t side = 4096;
  const std::vector<std::filesystem::path> paths{dir.write(
      "t.pt", torch_zip({{.name = "w",
                          .shape = {side, side},
                          .bytes = std::string(static_cast<std::size_t>(side * side * 4), 'x'),
                          .strides = {{1, side}}}}))};
  const auto checkpoint = open_checkpoint(paths);
  std::vector<std::byte> out(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    for (std::uint64_t first = 0; first < checkpoint->nbytes(0); first += out.size()) {
      if (!checkpoint->read(0, first, out)) {
        state.SkipWithError("cannot read");
        return;
      }
    }
  }
  state.SetBytesProcessed(state.iterations() * side * side * 4);
}
BENCHMARK(read_transposed)->Arg(1 << 20)->Arg(8 << 20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace onnx_external
