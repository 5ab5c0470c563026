#include "checkpoint/quantized/bands.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/try.h"

namespace onnx_external {

BandPool::Band BandPool::find(std::uint64_t view, std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->view == view && kept->number == number) {
      kept_.splice(kept_.begin(), kept_, kept);
      return kept->band;
    }
  }
  return nullptr;
}

void BandPool::keep(std::uint64_t view, std::uint64_t number, Band band) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += band->size();
  kept_.push_front({view, number, std::move(band)});
  while (bytes_ > kKeptBandBytes && kept_.size() > 1) {
    bytes_ -= kept_.back().band->size();
    kept_.pop_back();
  }
}

namespace {

class BandReader {
 public:
  BandReader(std::uint64_t row_bytes, std::uint64_t bytes, ReadSource read,
             std::shared_ptr<BandPool> pool)
      : band_bytes_(std::max<std::uint64_t>(kBandBytes / row_bytes, 1) * row_bytes),
        bytes_(bytes),
        read_(std::move(read)),
        pool_(std::move(pool)),
        view_(pool_->add_view()) {}

  Status read(std::uint64_t first, std::span<std::byte> out) const {
    for (std::uint64_t done = 0; done < out.size();) {
      const std::uint64_t at = first + done;
      TRY_ASSIGN(const auto band, band_of(at / band_bytes_));
      const std::uint64_t place = at % band_bytes_;
      const std::uint64_t count = std::min<std::uint64_t>(out.size() - done, band->size() - place);
      std::memcpy(out.data() + done, band->data() + place, static_cast<std::size_t>(count));
      done += count;
    }
    return {};
  }

 private:
  Result<BandPool::Band> band_of(std::uint64_t number) const {
    if (auto kept = pool_->find(view_, number)) {
      return kept;
    }
    const std::uint64_t first = number * band_bytes_;
    auto band = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(std::min(band_bytes_, bytes_ - first)));
    TRY(read_(first, *band));
    pool_->keep(view_, number, band);
    return BandPool::Band(std::move(band));
  }

  std::uint64_t band_bytes_;
  std::uint64_t bytes_;
  ReadSource read_;
  std::shared_ptr<BandPool> pool_;
  std::uint64_t view_;
};

}  // namespace

ReadSource in_bands(const TensorView& view, ReadSource read, std::shared_ptr<BandPool> pool) {
  const auto bytes = contiguous_nbytes(view.dtype, view.shape);
  if (is_contiguous(view.shape, view.strides) || view.shape.size() != 2 || !bytes || *bytes == 0) {
    return read;
  }
  const auto reader = std::make_shared<const BandReader>(
      *bytes / static_cast<std::uint64_t>(view.shape[0]), *bytes, std::move(read), std::move(pool));
  return
      [reader](std::uint64_t first, std::span<std::byte> out) { return reader->read(first, out); };
}

}  // namespace onnx_external
