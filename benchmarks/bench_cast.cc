// Measures conversions of element types, and gathers of views that are not row-major, in comparison
// with memcpy of as many bytes. state.range(0) bytes are read, which fit in the L2 cache or are
// much larger.
#include <benchmark/benchmark.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/io_buffer.h"
#include "tensor/cast.h"
#include "tensor/strided_gather.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kCached = 128 << 10;
constexpr std::int64_t kLarge = 256 << 20;

std::span<std::byte> filled(IoBuffer& buffer, std::size_t size) {
  const auto bytes = buffer.first(size);
  std::memset(bytes.data(), 0x3c, size);
  return bytes;
}

// Counts bytes read and bytes written.
void bm_memcpy(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  IoBuffer in_buffer;
  IoBuffer out_buffer;
  const auto in = filled(in_buffer, size);
  const auto out = filled(out_buffer, size);
  for ([[maybe_unused]] auto round : state) {
    std::memcpy(out.data(), in.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}
BENCHMARK(bm_memcpy)->Arg(kCached)->Arg(kLarge);

void bm_cast(benchmark::State& state, DType from, DType to, CastPath path) {
  const auto size = static_cast<std::size_t>(state.range(0));
  IoBuffer in_buffer;
  IoBuffer out_buffer;
  const auto in = filled(in_buffer, size);
  const auto out = filled(out_buffer, size / byte_size(from) * byte_size(to));
  for ([[maybe_unused]] auto round : state) {
    cast_elements(from, to, in, out, path);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(in.size() + out.size()));
}

#define CAST_BENCHMARK(name, from, to)                                                     \
  BENCHMARK_CAPTURE(bm_cast, name, DType::from, DType::to, CastPath::kBest)                \
      ->Arg(kCached)                                                                       \
      ->Arg(kLarge);                                                                       \
  BENCHMARK_CAPTURE(bm_cast, name##_portable, DType::from, DType::to, CastPath::kPortable) \
      ->Arg(kCached)

CAST_BENCHMARK(float32_to_float16, kFloat32, kFloat16);
CAST_BENCHMARK(float32_to_bfloat16, kFloat32, kBFloat16);
CAST_BENCHMARK(float16_to_float32, kFloat16, kFloat32);
CAST_BENCHMARK(bfloat16_to_float32, kBFloat16, kFloat32);
CAST_BENCHMARK(bfloat16_to_float16, kBFloat16, kFloat16);
CAST_BENCHMARK(float64_to_float32, kFloat64, kFloat32);
CAST_BENCHMARK(float64_to_float16, kFloat64, kFloat16);
CAST_BENCHMARK(float8_e4m3fn_to_float16, kFloat8E4M3Fn, kFloat16);
CAST_BENCHMARK(float8_e4m3fn_to_bfloat16, kFloat8E4M3Fn, kBFloat16);
CAST_BENCHMARK(float8_e4m3fn_to_float32, kFloat8E4M3Fn, kFloat32);
CAST_BENCHMARK(float8_e5m2_to_float16, kFloat8E5M2, kFloat16);

// Gathers a view of row-major memory with permuted dimensions in pieces of 2 MiB, like a writer.
void bm_gather(benchmark::State& state, std::uint32_t unit, const std::vector<std::uint64_t>& sizes,
               const std::vector<std::size_t>& order) {
  StridedView view{unit, {}, {}};
  std::vector<std::uint64_t> strides(sizes.size(), unit);
  for (std::size_t d = sizes.size() - 1; d-- > 0;) {
    strides[d] = strides[d + 1] * sizes[d + 1];
  }
  const std::uint64_t bytes = strides[0] * sizes[0];
  for (const std::size_t d : order) {
    view.sizes.push_back(sizes[d]);
    view.strides.push_back(strides[d]);
  }
  constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;
  IoBuffer source_buffer;
  IoBuffer piece_buffer;
  const auto source = filled(source_buffer, static_cast<std::size_t>(bytes));
  const ReadSource read = [&](std::uint64_t offset, std::span<std::byte> out) -> Status {
    std::memcpy(out.data(), source.data() + offset, out.size());
    return {};
  };
  for ([[maybe_unused]] auto round : state) {
    for (std::uint64_t done = 0; done < bytes; done += kPiece) {
      const auto piece = piece_buffer.first(std::min(kPiece, bytes - done));
      if (!gather_strided(view, done / unit, piece, read)) {
        state.SkipWithError("cannot gather");
      }
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<std::int64_t>(bytes));
}
BENCHMARK_CAPTURE(bm_gather, row_major, 4, {4096, 4096}, {0, 1});
BENCHMARK_CAPTURE(bm_gather, transposed_float32, 4, {4096, 4096}, {1, 0});
BENCHMARK_CAPTURE(bm_gather, transposed_float16, 2, {4096, 8192}, {1, 0});
BENCHMARK_CAPTURE(bm_gather, channels_last_float32, 4, {256, 56, 56, 64}, {0, 3, 1, 2});
BENCHMARK_CAPTURE(bm_gather, channels_last_float16, 2, {256, 56, 56, 64}, {0, 3, 1, 2});
BENCHMARK_CAPTURE(bm_gather, reversed_float32, 4, {64, 48, 56, 96}, {3, 2, 1, 0});

}  // namespace
}  // namespace onnx_external
