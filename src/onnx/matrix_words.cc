// Words for what find_matrices() finds.
#include <algorithm>
#include <array>
#include <string>

#include "base/text.h"
#include "onnx/matrix_uses.h"

namespace onnx_external {

std::string float_reason_text(FloatReason reason, std::string_view detail) {
  const std::string what(detail);
  switch (reason) {
    case FloatReason::kNone:
      return "";
    case FloatReason::kVector:
      return "it is not a matrix";
    case FloatReason::kType:
      return "no CPU kernel multiplies by type " + what;
    case FloatReason::kReader:
      return what + " reads it";
    case FloatReason::kFirstInput:
      return "it is the first input of " + what;
    case FloatReason::kGemm:
      return "a Gemm scales or transposes more than the weight";
    case FloatReason::kGatherAxis:
      return "a Gather takes columns of it";
    case FloatReason::kBatches:
      return what + " does not read it as a matrix";
    case FloatReason::kView:
      return what + " reorders its elements in a way that cannot be traced";
    case FloatReason::kSeveral:
      return "nodes read it in different ways";
    case FloatReason::kGraphOutput:
      return "it is an output";
    case FloatReason::kReplaceable:
      return "callers may replace it, because it is also an input";
    case FloatReason::kUnread:
      return "no node reads it";
    case FloatReason::kSmall:
      return "it is small";
    case FloatReason::kLong:
      return "its rows are too long";
    case FloatReason::kRouter:
      return "it chooses experts";
    case FloatReason::kPattern:
      return "the pattern " + quote(what) + " keeps it";
    case FloatReason::kChosen:
      return "it is a head or an embedding, which are not quantized";
    case FloatReason::kBlocks:
      return "no block size of at least 16 columns divides its rows";
    case FloatReason::kForm:
      return "the standard form " + what;
    case FloatReason::kFloats:
      return "the checkpoint has it in float";
    case FloatReason::kUnkept:
      return what;
  }
  return "";
}

std::string_view role_name(MatrixRole role) {
  constexpr std::array<std::string_view, 4> kRoleNames{"linear", "head", "embedding", "router"};
  return kRoleNames[static_cast<std::size_t>(role)];
}

bool Matrix::has(MatrixRole role) const {
  return std::any_of(uses.begin(), uses.end(),
                     [&](const MatrixUse& use) { return use.role == role; });
}

bool Matrix::is_multiplied() const {
  return std::any_of(uses.begin(), uses.end(),
                     [](const MatrixUse& use) { return use.role != MatrixRole::kEmbedding; });
}

}  // namespace onnx_external
