// Caches rows of transposed tensors for the next reads. Such rows run across the file, so reading a
// few takes nearly as long as reading many.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The bytes of one band, and of all that are kept. A save stays below 64 MiB with them.
inline constexpr std::uint64_t kBandBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kKeptBandBytes = std::uint64_t{8} << 20;

// The bands of a checkpoint that were read last. Thread-safe.
class BandPool {
 public:
  using Band = std::shared_ptr<const std::vector<std::byte>>;

  // A number that distinguishes the bands of one view from those of others.
  [[nodiscard]] std::uint64_t add_view() { return ++views_; }

  // Null if it is not kept.
  [[nodiscard]] Band find(std::uint64_t view, std::uint64_t number);
  void keep(std::uint64_t view, std::uint64_t number, Band band);

 private:
  struct Kept {
    std::uint64_t view;
    std::uint64_t number;
    Band band;
  };

  std::atomic<std::uint64_t> views_{0};
  std::mutex mutex_;
  std::list<Kept> kept_;  // the last one used first
  std::uint64_t bytes_ = 0;
};

// A source of the same bytes, which reads them in bands of rows if the view is not contiguous.
// `read` gives the bytes of the row-major tensor.
[[nodiscard]] ReadSource in_bands(const TensorView& view, ReadSource read,
                                  std::shared_ptr<BandPool> pool);

}  // namespace onnx_external
