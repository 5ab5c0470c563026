// MXFP6 weights: four codes in three bytes, low bits first, and exponents for 32 values each.
// compressed-tensors always has E2M3, Quark also E3M2.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kFloat6Bits = 6;
constexpr std::uint64_t kFloat6Codes = 4;  // in so many bytes:
constexpr std::uint64_t kFloat6Bytes = 3;
constexpr std::int64_t kFloat6Group = 32;

// The values of the codes: a sign, `exponent_bits` and the mantissa.
std::vector<float> float6_table(std::uint32_t exponent_bits) {
  const std::uint32_t mantissa_bits = kFloat6Bits - 1 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::vector<float> table;
  for (std::uint32_t code = 0; code < (1U << kFloat6Bits); ++code) {
    const std::uint32_t mantissa = code & ((1U << mantissa_bits) - 1);
    const auto exponent = static_cast<int>(code >> mantissa_bits & ((1U << exponent_bits) - 1));
    const std::uint32_t whole = mantissa + (exponent > 0 ? 1U << mantissa_bits : 0);
    const float value = std::ldexp(static_cast<float>(whole),
                                   std::max(exponent, 1) - bias - static_cast<int>(mantissa_bits));
    table.push_back(code >> (kFloat6Bits - 1) != 0 ? -value : value);
  }
  return table;
}

Status add_float6(MatrixFinder& finder, const std::string& module, std::string_view part,
                  std::uint32_t exponent_bits) {
  const TensorView& codes = *finder.find(module, part);
  const TensorView& scales = *finder.find(module, "weight_scale");
  auto matrix = matrix_of(codes, 1);
  if (!matrix || matrix->columns % kFloat6Bytes != 0) {
    return do_not_fit(codes, scales);
  }
  TRY(check_no_zeros(finder, module));
  matrix->columns = matrix->columns / kFloat6Bytes * kFloat6Codes;
  matrix->method = "MXFP6";
  matrix->name = weight_name(module, codes);
  matrix->kind = CodeKind::kTable;
  matrix->table = float6_table(exponent_bits);
  matrix->codes = codes_in_rows(finder, *matrix, codes, kFloat6Bits);
  TRY(set_scale_table(finder, *matrix, scales, {1, kFloat6Group}));
  if (matrix->group != kFloat6Group) {
    return do_not_fit(codes, scales);
  }
  return finder.add(*std::move(matrix), module,
                    {part, "weight_scale", "weight_shape", "weight_zero_point", "input_scale"});
}

// The bits of the exponents in the module's codes; none if its settings do not say FP6.
std::optional<std::uint32_t> exponent_bits(const QuantSettings& settings, const std::string& module,
                                           std::string_view part) {
  if (part == "weight_packed") {
    for (const Json* const args : weight_args(settings, module)) {
      const std::string* const type = args->get<std::string>("type");
      if (json_integer(args->find("num_bits")) == kFloat6Bits && type != nullptr &&
          *type == "float") {
        return 2;
      }
    }
    return std::nullopt;
  }
  const Json* const weight = quark_weight(settings, module);
  const std::string* const type = weight == nullptr ? nullptr : weight->get<std::string>("dtype");
  if (type == nullptr || !type->starts_with("fp6_e")) {
    return std::nullopt;
  }
  return type->ends_with("e2m3") ? 2 : 3;
}

}  // namespace

Status find_float6(MatrixFinder& finder) {
  for (const std::string_view part : {"weight_packed", "weight"}) {
    for (const std::string& module : finder.modules_with("weight_scale")) {
      const TensorView* const codes = finder.find(module, part);
      const DType scales = finder.find(module, "weight_scale")->dtype;
      const auto bits = exponent_bits(finder.settings(), module, part);
      if (bits && codes != nullptr && codes->dtype == DType::kUInt8 && is_exponent(scales)) {
        TRY(finder.accept(add_float6(finder, module, part, *bits)));
      }
    }
  }
  return {};
}

}  // namespace onnx_external
