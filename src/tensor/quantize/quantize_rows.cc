#include "tensor/quantize/quantize_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/cast.h"
#include "tensor/quantize/block_job.h"
#include "tensor/quantize/float_environment.h"

namespace onnx_external {
namespace {

constexpr std::size_t kRunBlocks = 512;  // that a kernel gets at once
constexpr std::size_t kRunPadded = 64;   // of these, last ones of rows that are padded
constexpr double kSearchReach = 0.1;     // factors lie in [1 - this, 1 + this]
constexpr int kUnitOfErrors = 128;

constexpr std::byte kUnusedHalf{0x80};

using Kernel = std::uint32_t (*)(const BlockJob&);

// Asked once: CPUID may end in a virtual machine's monitor. Two threads may both ask.
QuantizePath best_path() {
  static std::atomic<QuantizePath> best{QuantizePath::kBest};
  if (best.load(std::memory_order_relaxed) == QuantizePath::kBest) {
    QuantizePath path = QuantizePath::kPortable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      path = QuantizePath::kAvx512;
    } else if (__builtin_cpu_supports("avx2")) {
      path = QuantizePath::kAvx2;
    }
#endif
    best.store(path, std::memory_order_relaxed);
  }
  return best.load(std::memory_order_relaxed);
}

// Groups of 16 large blocks leave too little of a first-level cache of 32 KiB: with AVX-512,
// float32 in blocks of 128 takes 1.2 times as long as with AVX2 (int8, Zen 4).
QuantizePath best_path(DType dtype, std::uint32_t block) {
  const bool is_large = dtype == DType::kFloat32 && block >= 128;
  return is_large ? std::min(best_path(), QuantizePath::kAvx2) : best_path();
}

Kernel kernel_of(QuantizePath path) {
#if defined(__x86_64__)
  switch (path) {
    case QuantizePath::kAvx512:
      return quantize_blocks_avx512;
    case QuantizePath::kAvx2:
      return quantize_blocks_avx2;
    default:
      return quantize_blocks_portable;
  }
#else
  (void)path;
  return quantize_blocks_portable;
#endif
}

// Returns 2^exponent, like std::ldexp(), whose call takes longer. Requires: it is a normal number.
double power_of_two(int exponent) {
  constexpr int kBias = 1023;
  constexpr int kMantissaBits = 52;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kBias) << kMantissaBits);
}

// A half that no block uses is the middle, as ONNX Runtime's quantizer leaves it.
void store_zero(std::uint32_t bits, std::uint64_t block, std::uint8_t zero, std::byte* row) {
  if (bits == 8) {
    row[block] = std::byte{zero};
  } else if (block % 2 == 0) {
    row[block / 2] = std::byte{zero} | kUnusedHalf;
  } else {
    row[block / 2] = (row[block / 2] & ~std::byte{0xf0}) | std::byte{zero} << 4;
  }
}

// Hands the blocks of a batch to a kernel, a run of them at a time.
class BatchQuantizer {
 public:
  BatchQuantizer(const Scheme& scheme, const RowBatch& batch, const PackedRows& out,
                 QuantizationError* error, QuantizePath path)
      : scheme_(scheme),
        batch_(batch),
        out_(out),
        error_(error),
        kernel_(
            kernel_of(path == QuantizePath::kBest ? best_path(batch.dtype, scheme.block) : path)),
        blocks_((batch.columns + scheme.block - 1) / scheme.block),
        block_bytes_(std::size_t{scheme.block} * byte_size(batch.dtype)) {
    fill_factors();
    job_.bits = scheme.bits;
    job_.block = scheme.block;
    job_.zero_points = scheme.zero_points;
    job_.values_type = batch.dtype;
    job_.scales_type = scheme.scales;
    job_.factors = factors_.data();
    job_.steps = scheme.steps;
    job_.values = values_.data();
    job_.zeros = zeros_.data();
    if (error != nullptr) {
      job_.differences = differences_.data();
      job_.squares = squares_.data();
      job_.exponents = exponents_.data();
    }
  }

  [[nodiscard]] Status quantize() {
    const std::uint64_t row_bytes = batch_.columns * byte_size(batch_.dtype);
    const std::uint64_t rows = row_bytes == 0 ? 0 : batch_.values.size() / row_bytes;
    const bool has_padding = batch_.columns % scheme_.block != 0;
    padded_.resize(has_padding ? kRunPadded * block_bytes_ : 0);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const auto values = batch_.values.subspan(row * row_bytes, row_bytes);
      for (std::uint64_t block = 0; block < blocks_; ++block) {
        const std::size_t first = block * block_bytes_;
        const bool is_whole = values.size() - first >= block_bytes_;
        values_[count_++] = is_whole ? values.data() + first : padded(values.subspan(first));
        if (count_ == kRunBlocks || padded_count_ == kRunPadded) {
          TRY(finish_run());
        }
      }
    }
    return finish_run();
  }

 private:
  // From low to high; a single one is 1.
  void fill_factors() {
    const int half = static_cast<int>(scheme_.steps / 2);
    for (int i = -half; i <= half && scheme_.steps != 0; ++i) {
      factors_[static_cast<std::size_t>(i + half)] =
          static_cast<float>(1 + (half == 0 ? 0 : kSearchReach * i / half));
    }
  }

  // The last block of a row, with zeros behind it.
  [[nodiscard]] const std::byte* padded(std::span<const std::byte> values) {
    std::byte* const block = padded_.data() + padded_count_++ * block_bytes_;
    std::copy(values.begin(), values.end(), block);
    std::fill(block + values.size(), block + block_bytes_, std::byte{0});
    return block;
  }

  [[nodiscard]] Status finish_run() {
    const std::size_t code_bytes = std::size_t{scheme_.block} * scheme_.bits / 8;
    job_.count = count_;
    job_.codes = out_.codes.data() + done_ * code_bytes;
    job_.scales = out_.scales.data() + done_ * byte_size(scheme_.scales);
    if (count_ != 0 && kernel_(job_) != 0) {
      return fail(first_fault());
    }
    const std::uint64_t zeros_bytes = (blocks_ * scheme_.bits + 7) / 8;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint64_t row = (done_ + i) / blocks_;
      const std::uint64_t block = (done_ + i) % blocks_;
      if (scheme_.zero_points) {
        store_zero(scheme_.bits, block, zeros_[i], out_.zero_points.data() + row * zeros_bytes);
      }
      if (error_ != nullptr) {
        add_error(i, block + 1 == blocks_);
      }
    }
    done_ += count_;
    count_ = 0;
    padded_count_ = 0;
    return {};
  }

  // The sum of a row is that of its blocks in their order, in double.
  void add_error(std::size_t i, bool is_last) {
    const double unit = power_of_two(2 * (exponents_[i] - kUnitOfErrors));
    difference_ += unit * static_cast<double>(differences_[i]);
    square_ += unit * static_cast<double>(squares_[i]);
    if (is_last) {
      error_->differences.add(difference_);
      error_->values.add(square_);
      difference_ = 0;
      square_ = 0;
    }
  }

  // Returns the error for the first bad block in the run that the kernel has just rejected.
  [[nodiscard]] Error first_fault() {
    std::size_t bad = 0;
    std::uint32_t faults = 0;
    for (job_.count = 1; faults == 0; ++bad) {
      job_.values = values_.data() + bad;
      faults = kernel_(job_);
    }
    const std::uint64_t index = done_ + --bad;
    const std::uint64_t row = batch_.first_row + index / blocks_;
    const std::uint64_t column = index % blocks_ * scheme_.block;
    if ((faults & kNotFinite) != 0) {
      return not_finite(values_[bad], row, column);
    }
    return kept_float(
        fmt::format("row {}: the block at column {} needs a scale that is too large for {}", row,
                    column, torch_name(scheme_.scales)));
  }

  [[nodiscard]] Error not_finite(const std::byte* block, std::uint64_t row,
                                 std::uint64_t column) const {
    std::vector<float> values(scheme_.block);
    cast_elements(batch_.dtype, DType::kFloat32, std::span(block, block_bytes_),
                  std::as_writable_bytes(std::span(values)));
    const auto found = std::find_if(values.begin(), values.end(),
                                    [](float value) { return !std::isfinite(value); });
    const char* const what = std::isnan(*found) ? "NaN" : *found > 0 ? "inf" : "-inf";
    return kept_float(fmt::format("row {}, column {} is {}, which no code can represent", row,
                                  column + static_cast<std::uint64_t>(found - values.begin()),
                                  what));
  }

  [[nodiscard]] Error kept_float(const std::string& what) const {
    return error_with(ErrorCode::kUnsupported,
                      fmt::format("tensor {}: {}", quote(batch_.name), what),
                      {{RemedyOption::kKeepFloat, std::string(batch_.name), "not to quantize it"}});
  }

  const Scheme& scheme_;
  const RowBatch& batch_;
  const PackedRows& out_;
  QuantizationError* error_;
  Kernel kernel_;
  std::uint64_t blocks_;     // of a row
  std::size_t block_bytes_;  // of values
  BlockJob job_;

  std::uint64_t done_ = 0;  // blocks before the run
  std::size_t count_ = 0;   // blocks of the run
  std::size_t padded_count_ = 0;
  double difference_ = 0;  // of the row so far
  double square_ = 0;
  std::vector<std::byte> padded_;
  std::array<float, kMaxSearchSteps> factors_{};
  std::array<const std::byte*, kRunBlocks> values_{};
  std::array<std::uint8_t, kRunBlocks> zeros_{};
  std::array<float, kRunBlocks> differences_{};
  std::array<float, kRunBlocks> squares_{};
  std::array<std::int32_t, kRunBlocks> exponents_{};
};

}  // namespace

void QuantizationError::add(const QuantizationError& other) {
  differences.add(other.differences);
  values.add(other.values);
}

double QuantizationError::relative_rms() const {
  const double all = values.value();
  return all == 0 ? 0 : std::sqrt(differences.value() / all);
}

bool has_path(QuantizePath path) {
  return path <= best_path();
}

Status quantize_rows(const Scheme& scheme, const RowBatch& batch, const PackedRows& out,
                     QuantizationError* error, QuantizePath path) {
  const DefaultFloatEnvironment environment;
  return BatchQuantizer(scheme, batch, out, error, path).quantize();
}

}  // namespace onnx_external
