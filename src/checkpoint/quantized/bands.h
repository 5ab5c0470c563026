// Caches rows of transposed tensors for later reads. Because the bytes of such a row are spread
// over the whole tensor in the file, reading a few rows takes nearly as long as reading many.
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

// The size of one band (a group of adjacent rows), and of all bands that are kept. With these
// sizes, a save needs less than 64 MiB of memory.
inline constexpr std::uint64_t kBandBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kKeptBandBytes = std::uint64_t{4} << 20;

// The most recently read bands of a checkpoint. Thread-safe.
class BandPool {
 public:
  using Band = std::shared_ptr<const std::vector<std::byte>>;

  // Returns a number that distinguishes the bands of one view from those of other views.
  [[nodiscard]] std::uint64_t add_view() { return ++views_; }

  // Returns null if the band is not in the cache.
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
  std::list<Kept> kept_;  // most recently used first
  std::uint64_t bytes_ = 0;
};

// Returns a source of the same bytes as `read`. If the view is not contiguous, it reads them in
// bands of rows. `read` is a source of the row-major tensor's bytes.
[[nodiscard]] ReadSource in_bands(const TensorView& view, ReadSource read,
                                  std::shared_ptr<BandPool> pool);

}  // namespace onnx_external
