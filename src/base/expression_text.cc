#include "base/expression_text.h"

#include "base/text.h"

namespace onnx_external {

std::string invalid_expression_text(std::string_view re2_error) {
  constexpr std::string_view kBeforePart = ": ";
  const std::size_t end = re2_error.find(kBeforePart);
  const std::string fault = "invalid regular expression, " + quote(re2_error.substr(0, end));
  return end == std::string_view::npos
             ? fault
             : fault + " in " + quote(re2_error.substr(end + kBeforePart.size()));
}

}  // namespace onnx_external
