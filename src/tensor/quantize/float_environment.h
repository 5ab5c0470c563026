// Sets the default floating-point environment, on which the results of quantization depend, for a
// scope.
#pragma once

#include <cfenv>

namespace onnx_external {

// During the scope, operations in this thread round to nearest, keep subnormal numbers and raise no
// signals. This is necessary because the program, or a library that was linked with -ffast-math,
// may have changed these settings.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    (void)std::fegetenv(&before_);
    (void)std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { (void)std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace onnx_external
