// Sums doubles without rounding, so that the sum does not depend on their order.
#pragma once

#include <array>
#include <cstdint>

namespace onnx_external {

// Plain value; one thread at a time.
class ExactSum {
 public:
  // Requires: the value is finite and not negative.
  void add(double value);
  void add(const ExactSum& other);

  // The sum, rounded. Equal sums give equal doubles.
  [[nodiscard]] double value() const;

 private:
  void add_at(std::size_t limb, std::uint64_t bits);  // bits < 2^32

  // 32 bits each, lowest first; bit 0 of the first is 2^-1074. The last ones hold carries: 2^64
  // values of the largest size fit.
  static constexpr std::size_t kLimbs = 68;
  std::array<std::uint32_t, kLimbs> limbs_{};
};

}  // namespace onnx_external
