// Sets the floating-point environment that results depend on.
#pragma once

#include <cfenv>

namespace onnx_external {

// Rounds to nearest, keeps subnormal numbers and raises no signal until the end of the scope, in
// this thread. A program, or a library that was linked with -ffast-math, may have set it otherwise.
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
