// Sums doubles without rounding, so that the result does not depend on the order of the additions.
#pragma once

#include <array>
#include <cstdint>

namespace onnx_external {

// The sum of values that were added. A plain value, for use by one thread at a time.
class ExactSum {
 public:
  // Adds a value. Requires: the value is finite and not negative.
  void add(double value);
  void add(const ExactSum& other);

  // Returns the sum, rounded to a double. Equal sums have equal results.
  [[nodiscard]] double value() const;

 private:
  void add_at(std::size_t limb, std::uint64_t bits);  // bits < 2^32

  // The sum as limbs of 32 bits, the lowest first. Bit 0 of the first limb is 2^-1074. The last
  // limbs are for carries, so that a sum of 2^64 values of the largest magnitude fits.
  static constexpr std::size_t kLimbs = 68;
  std::array<std::uint32_t, kLimbs> limbs_{};
};

}  // namespace onnx_external
