// Measures the quantization of bfloat16 weights on one thread, with each implementation that the
// processor supports. A weight takes 1e9 / items_per_second nanoseconds. The matrix is much larger
// than the caches.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/io_buffer.h"
#include "tensor/quantize/dequantize_rows.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kRows = 2048;
constexpr std::uint64_t kColumns = 4096;

// Returns Gaussian weights. All rows have the same sequence, with different starting points.
std::span<std::byte> weights(IoBuffer& buffer) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::uint16_t> values(kRows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = i < 64 * kColumns ? normal(generator) : 0;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    values[i] =
        i < 64 * kColumns ? static_cast<std::uint16_t>(bits >> 16) : values[i % (63 * kColumns)];
  }
  const auto bytes = buffer.first(values.size() * sizeof(values[0]));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Matrix {
  explicit Matrix(const Scheme& scheme) {
    const auto layout = packed_layout(scheme, kRows, kColumns);
    codes = buffers[0].first(layout->codes.bytes);
    scales = buffers[1].first(layout->scales.bytes);
    zero_points = buffers[2].first(layout->zero_points.bytes);
  }
  IoBuffer buffers[3];
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> zero_points;
};

void bm_quantize(benchmark::State& state, const char* text, QuantizePath path, bool errors) {
  if (!has_path(path)) {
    state.SkipWithError("not on this processor");
    return;
  }
  const Scheme scheme = *parse_scheme(text);
  IoBuffer buffer;
  const auto values = weights(buffer);
  const Matrix out(scheme);
  for ([[maybe_unused]] auto round : state) {
    QuantizationError error;
    if (!quantize_rows(
            scheme, {.dtype = DType::kBFloat16, .columns = kColumns, .values = values, .name = "w"},
            {out.codes, out.scales, out.zero_points}, errors ? &error : nullptr, path)) {
      state.SkipWithError("cannot quantize");
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kRows * kColumns));
}

void bm_dequantize(benchmark::State& state, const char* text) {
  const Scheme scheme = *parse_scheme(text);
  const Matrix in(scheme);
  for (const auto part : {in.codes, in.scales, in.zero_points}) {
    std::fill(part.begin(), part.end(), std::byte{1});
  }
  std::vector<float> out(kRows * kColumns);
  for ([[maybe_unused]] auto round : state) {
    dequantize_rows(scheme, kColumns, {in.codes, in.scales, in.zero_points}, out);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kRows * kColumns));
}

#define QUANTIZE_BENCHMARK(name, text)                                                   \
  BENCHMARK_CAPTURE(bm_quantize, name##_portable, text, QuantizePath::kPortable, false); \
  BENCHMARK_CAPTURE(bm_quantize, name##_avx2, text, QuantizePath::kAvx2, false);         \
  BENCHMARK_CAPTURE(bm_quantize, name##_avx512, text, QuantizePath::kAvx512, false);     \
  BENCHMARK_CAPTURE(bm_quantize, name##_with_errors, text, QuantizePath::kBest, true)

QUANTIZE_BENCHMARK(int4_32_symmetric_nearest, "int4/32, symmetric, nearest, float16 scales");
QUANTIZE_BENCHMARK(int4_64_nearest, "int4/64, nearest");
QUANTIZE_BENCHMARK(int4_64_search_5, "int4/64");
QUANTIZE_BENCHMARK(int4_32_search_5, "int4/32");
QUANTIZE_BENCHMARK(int8_128_symmetric_nearest, "int8/128");
BENCHMARK_CAPTURE(bm_dequantize, int4_64, "int4/64");
BENCHMARK_CAPTURE(bm_dequantize, int8_128, "int8/128");

}  // namespace
}  // namespace onnx_external
