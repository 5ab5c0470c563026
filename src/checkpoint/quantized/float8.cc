// Float8 weights with scales, one for the whole, for each row, group of a row or block: those of
// DeepSeek and transformers (weight_scale_inv, which is multiplied in spite of its name), FBGEMM,
// ModelOpt, compressed-tensors, torchao and quanto. Files without settings are read only under
// names of which one library is the only user: under the others, makers disagree on whether a scale
// is a factor or a divisor.
#include <algorithm>
#include <array>
#include <string_view>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kExponentGroup = 32;
constexpr std::int64_t kUsualBlock = 128;  // of all makers

// The endings of the names of a weight and of its scales, and of the name under which the weight is
// listed.
struct Float8Names {
  std::string_view weight;
  std::string_view scale;
  std::string_view listed;
  std::string_view method = "fp8";
  bool has_many_makers = true;
};

constexpr std::array kFloat8Names = {
    Float8Names{"weight", "weight_scale_inv", "weight"},
    Float8Names{"weight", "weight_scale", "weight"},
    Float8Names{"weight", "scale_weight", "weight"},
    Float8Names{"weight", "scale", "weight"},
    Float8Names{"weight._data", "weight._scale", "weight", "quanto", false},
    Float8Names{"_weight_qdata", "_weight_scale", "weight", "torchao", false},
    Float8Names{"gate_up_proj", "gate_up_proj_scale_inv", "gate_up_proj"},
    Float8Names{"gate_up_proj", "gate_up_proj_scale", "gate_up_proj"},
    Float8Names{"down_proj", "down_proj_scale_inv", "down_proj"},
    Float8Names{"down_proj", "down_proj_scale", "down_proj"},
};

// Methods whose float8 weights all have scales under the names above.
constexpr std::array<std::string_view, 5> kScaledMethods = {
    "fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "quark"};

// transformers leaves weights with few rows unchanged, but writes a scale for them that nobody has
// filled.
void hide_unused(MatrixFinder& finder, const std::string& module, const TensorView& weight) {
  const TensorView* const scale = finder.find(module, "weight_scale_inv");
  if (finder.settings().is_given() && scale != nullptr && !is_float8(weight.dtype) &&
      is_floating(weight.dtype)) {
    finder.note(quote(scale->name) + " is not used, because " + quote(weight.name) + " is " +
                std::string(torch_name(weight.dtype)));
    finder.hide(*scale);
  }
}

Status add_float8(MatrixFinder& finder, const Float8Names& names, const std::string& module,
                  const TensorView& weight, const TensorView& scales) {
  auto matrix = matrix_of(weight, 1);
  if (!matrix) {
    return do_not_fit(weight, scales);
  }
  TRY(check_no_zeros(finder, module));
  matrix->method = names.method;
  matrix->name =
      module.empty() ? std::string(names.listed) : module + "." + std::string(names.listed);
  matrix->kind = CodeKind::kFloat8;
  matrix->float8 = weight.dtype;
  matrix->table = float8_table(weight.dtype);
  matrix->codes = codes_in_rows(finder, *matrix, weight, 8);
  const std::uint64_t groups = (matrix->columns + kExponentGroup - 1) / kExponentGroup;
  if (scales.dtype == DType::kFloat8E8M0FnU && is_tiled(scales, matrix->rows, groups)) {
    TRY(set_tiled_scales(finder, *matrix, scales, kExponentGroup));
  } else {
    TRY(set_scale_table(finder, *matrix, scales,
                        said_block(finder.settings(), module, {kUsualBlock, kUsualBlock})));
  }
  return finder.add(
      *std::move(matrix), module,
      {names.weight, names.scale, "input_scale", "output_scale", "activation_scale", "scale_input",
       "input_scale_ub", "weight_shape", "weight_zero_point", "input_global_scale",
       "input_activation_scale", "output_activation_scale", "input_zero_point",
       "_weight_act_quant_scale", "gate_up_proj_activation_scale", "down_proj_activation_scale"});
}

// A float8 weight whose scale is missing, perhaps with the file that had it, has other values.
Status refuse_unscaled(const MatrixFinder& finder) {
  const std::string& method = finder.settings().method;
  if (std::find(kScaledMethods.begin(), kScaledMethods.end(), method) == kScaledMethods.end()) {
    return {};
  }
  for (const std::string& module : finder.modules_with("weight")) {
    const TensorView& weight = *finder.find(module, "weight");
    if (is_float8(weight.dtype) && weight.shape.size() > 1) {
      return corrupt(quote(weight.name) + " is " + std::string(torch_name(weight.dtype)) +
                     ", and " + finder.settings().place + " says " + quote(method) +
                     ", but no scales are stored for it; complete the folder");
    }
  }
  return {};
}

}  // namespace

Status find_float8(MatrixFinder& finder) {
  for (const Float8Names& names : kFloat8Names) {
    if (names.has_many_makers && !finder.settings().is_given()) {
      continue;
    }
    for (const std::string& module : finder.modules_with(names.scale)) {
      const TensorView* const weight = finder.find(module, names.weight);
      if (weight == nullptr) {
        continue;
      }
      if (!is_float8(weight->dtype)) {
        hide_unused(finder, module, *weight);
        continue;
      }
      TRY(finder.accept(
          add_float8(finder, names, module, *weight, *finder.find(module, names.scale))));
    }
  }
  return refuse_unscaled(finder);
}

}  // namespace onnx_external
