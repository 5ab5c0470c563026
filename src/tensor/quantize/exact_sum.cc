#include "tensor/quantize/exact_sum.h"

#include <bit>
#include <cmath>

namespace onnx_external {
namespace {

constexpr int kLeastExponent = -1074;
constexpr int kLimbBits = 32;
constexpr int kMantissaBits = 52;

}  // namespace

void ExactSum::add_at(std::size_t limb, std::uint64_t bits) {
  for (; bits != 0; ++limb) {
    bits += limbs_[limb];
    limbs_[limb] = static_cast<std::uint32_t>(bits);
    bits >>= kLimbBits;
  }
}

void ExactSum::add(double value) {
  constexpr std::uint64_t kHidden = std::uint64_t{1} << kMantissaBits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t field = bits >> kMantissaBits;  // the sign is 0
  const std::uint64_t mantissa = (bits & (kHidden - 1)) | (field == 0 ? 0 : kHidden);
  const std::uint64_t place = field == 0 ? 0 : field - 1;  // of the lowest bit
  const std::size_t limb = place / kLimbBits;
  const std::uint64_t shift = place % kLimbBits;
  const std::uint64_t low = (mantissa & 0xffffffff) << shift;
  const std::uint64_t high = (mantissa >> kLimbBits) << shift;
  add_at(limb, low & 0xffffffff);
  add_at(limb + 1, (low >> kLimbBits) + (high & 0xffffffff));
  add_at(limb + 2, high >> kLimbBits);
}

void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < kLimbs; ++i) {
    add_at(i, other.limbs_[i]);
  }
}

double ExactSum::value() const {
  double sum = 0;
  for (std::size_t i = kLimbs; i-- > 0;) {
    sum += std::ldexp(limbs_[i], kLeastExponent + static_cast<int>(i) * kLimbBits);
  }
  return sum;
}

}  // namespace onnx_external
