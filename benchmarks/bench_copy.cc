// Measures ways to copy a file range on one thread, in comparison with memcpy as the lower bound:
// the copy engine with and without checksums, and the simple loop that it must beat.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/copy_range.h"

namespace onnx_external {
namespace {

// A folder with a source of state.range(0) bytes in the page cache, and a new target for each
// round.
class CopyBench {
 public:
  explicit CopyBench(std::uint64_t bytes) : bytes_(bytes) {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench_copy_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    folder_.emplace(Directory::open(path_).value());
    const std::vector<std::byte> content(bytes, std::byte{7});
    auto file = OutputFile::create(*folder_, "source").value();
    (void)file.write(0, content);
    (void)file.close();
    source_ = SourceFile::open(path_ / "source").value();
  }
  CopyBench(const CopyBench&) = delete;
  CopyBench& operator=(const CopyBench&) = delete;
  ~CopyBench() { std::filesystem::remove_all(path_); }

  // Runs copy(source, target) once per round. The time to create and remove the target does not
  // count.
  template <typename Copy>
  void run(benchmark::State& state, const Copy& copy) {
    for ([[maybe_unused]] auto round : state) {
      state.PauseTiming();
      OutputFile target = OutputFile::create(*folder_, "target").value();
      state.ResumeTiming();
      Status status = target.preallocate(bytes_);
      if (status) {
        status = copy(*source_, target);
      }
      state.PauseTiming();
      (void)target.close();
      (void)folder_->remove_file("target");
      if (!status) {
        state.SkipWithError(status.error().message.c_str());
      }
      state.ResumeTiming();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_));
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  std::filesystem::path path_;
  std::optional<Directory> folder_;
  std::shared_ptr<const SourceFile> source_;
};

void splice_copy(benchmark::State& state) {
  CopyBench bench(static_cast<std::uint64_t>(state.range(0)));
  RangeCopier copier;
  bench.run(state, [&](const SourceFile& source, const OutputFile& target) {
    return copier.copy({source, 0, bench.bytes(), target, 0, {}});
  });
}

void copy_with_crc(benchmark::State& state) {
  CopyBench bench(static_cast<std::uint64_t>(state.range(0)));
  RangeCopier copier;
  bench.run(state, [&](const SourceFile& source, const OutputFile& target) {
    Crc32 crc;
    return copier.copy_with_crc({source, 0, bench.bytes(), target, 0, {}}, crc);
  });
}

// Copies like a simple program, 1 MiB at a time.
void read_write(benchmark::State& state) {
  CopyBench bench(static_cast<std::uint64_t>(state.range(0)));
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  bench.run(state, [&](const SourceFile& source, const OutputFile& target) -> Status {
    for (std::uint64_t done = 0; done < bench.bytes();) {
      const auto count = std::min<std::uint64_t>(buffer.size(), bench.bytes() - done);
      const auto piece = std::span(buffer).first(static_cast<std::size_t>(count));
      Status status = source.read(done, piece);
      if (status) {
        status = target.write(done, piece);
      }
      if (!status) {
        return status;
      }
      done += count;
    }
    return {};
  });
}

// Copies like a current version of cp.
void kernel_copy_file_range(benchmark::State& state) {
  CopyBench bench(static_cast<std::uint64_t>(state.range(0)));
  bench.run(state, [&](const SourceFile& source, const OutputFile& target) -> Status {
    off64_t from = 0;
    off64_t to = 0;
    while (static_cast<std::uint64_t>(from) < bench.bytes()) {
      const std::uint64_t left = bench.bytes() - static_cast<std::uint64_t>(from);
      if (::copy_file_range(source.fd(), &from, target.fd(), &to, left, 0) <= 0) {
        return fail(ErrorCode::kIo, "copy_file_range failed");
      }
    }
    return {};
  });
}

void memory_copy(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> source(size, std::byte{7});
  std::vector<std::byte> target(size);
  for ([[maybe_unused]] auto round : state) {
    std::memcpy(target.data(), source.data(), size);
    benchmark::DoNotOptimize(target.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(10 << 10)->Arg(1 << 20)->Arg(256 << 20)->UseRealTime();
}

BENCHMARK(splice_copy)->Apply(sizes);
BENCHMARK(copy_with_crc)->Apply(sizes);
BENCHMARK(read_write)->Apply(sizes);
BENCHMARK(kernel_copy_file_range)->Apply(sizes);
BENCHMARK(memory_copy)->Apply(sizes);

}  // namespace
}  // namespace onnx_external
