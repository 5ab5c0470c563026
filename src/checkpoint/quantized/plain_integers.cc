// Weights whose codes lie in rows, along K, the first in the lowest bits: int8 of
// compressed-tensors, quanto, torchao and others; MLX; Olive; and Gemma.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

// The columns of `view` if its rows are packed codes of so many bits; nothing if there are no such.
std::optional<QuantizedMatrix> packed_matrix(const TensorView& view, std::uint64_t bits) {
  auto matrix = matrix_of(view, 1);
  const auto row_bits =
      matrix ? checked_mul<std::uint64_t>(matrix->columns, bit_size(view.dtype)) : std::nullopt;
  if (!row_bits || bits == 0 || *row_bits / bits == 0) {
    return std::nullopt;
  }
  matrix->columns = *row_bits / bits;
  return matrix;
}

double middle_of(std::uint64_t bits) {
  return static_cast<double>(std::uint64_t{1} << (bits - 1));
}

bool is_code_bits(std::optional<std::int64_t> bits) {
  return bits && *bits >= 1 && *bits <= 8;
}

tl::unexpected<Error> needs_config(const QuantSettings& settings, const TensorView& codes,
                                   std::string_view method) {
  if (settings.is_given()) {
    return corrupt(fmt::format("{}: states no number of bits from 1 to 8 for {}", settings.place,
                               quote(codes.name)));
  }
  return fail(ErrorCode::kAmbiguous,
              fmt::format("{}: the number of bits per code in {} is ambiguous; pass the folder, "
                          "whose config.json states it",
                          quote(codes.name), method));
}

// The columns follow from the config's number of bits only, so its group size must agree with them.
Status check_said_group(const MatrixFinder& finder, const std::string& module,
                        const QuantizedMatrix& matrix, const TensorView& codes,
                        const TensorView& scales) {
  const auto said = number_for(finder.settings(), module, "group_size");
  if (!said || *said < 1 || std::cmp_equal(*said, matrix.group)) {
    return {};
  }
  return corrupt(fmt::format(
      "{}: the config says {} bits per code and groups of {}, but with so many bits, the shapes of "
      "{} and {} mean groups of {}",
      quote(matrix.name), matrix.codes.packing.bits, *said, quote(codes.name), quote(scales.name),
      matrix.group));
}

// --- int8 --------------------------------------------------------------------------------------

struct Int8Names {
  std::string_view codes;
  std::string_view scales;
  std::string_view zeros;
  std::string_view method;
  bool needs_settings = false;
};

constexpr std::array kInt8Names = {
    Int8Names{"weight", "weight_scale", "weight_zero_point", "int8"},
    Int8Names{"weight", "weight_scale_inv", "", "int8", true},  // a factor, as for float8
    Int8Names{"weight._data", "weight._scale", "", "quanto"},
    Int8Names{"_weight_qdata", "_weight_scale", "_weight_zero_point", "torchao"},
};

// torchao's factors for the inputs of a module.
constexpr std::string_view kAoFactors = "_weight_act_pre_scale";

Status add_int8(MatrixFinder& finder, const Int8Names& names, const std::string& module,
                const TensorView& codes, const TensorView& scales) {
  auto matrix = matrix_of(codes, 1);
  if (!matrix) {
    return do_not_fit(codes, scales);
  }
  matrix->method = names.method;
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, codes, 8);
  matrix->codes.packing.flip = kSignBit;
  matrix->zero = kSignBit;
  TRY(set_scale_table(finder, *matrix, scales,
                      said_block(finder.settings(), module, {1, std::nullopt})));
  const TensorView* const zeros = names.zeros.empty() ? nullptr : finder.find(module, names.zeros);
  if (zeros != nullptr) {
    matrix->zeros = numbers_like_scales(finder, *matrix, *zeros);
    matrix->zeros_offset = kSignBit;
  }
  if (const TensorView* const factors = finder.find(module, kAoFactors); factors != nullptr) {
    matrix->column_factors = finder.stored(*factors);
  }
  return finder.add(
      *std::move(matrix), module,
      {names.codes, names.scales, names.zeros, "input_scale", "output_scale", "input_zero_point",
       "weight_shape", "input_activation_scale", "output_activation_scale",
       "_weight_act_quant_scale", "_weight_act_quant_zero_point", kAoFactors});
}

Status find_int8(MatrixFinder& finder) {
  for (const Int8Names& names : kInt8Names) {
    if (names.needs_settings && !finder.settings().is_given()) {
      continue;
    }
    for (const std::string& module : finder.modules_with(names.scales)) {
      const TensorView* const codes = finder.find(module, names.codes);
      const TensorView* const scales = finder.find(module, names.scales);
      if (codes != nullptr && codes->dtype == DType::kInt8 && is_floating(scales->dtype)) {
        TRY(finder.accept(add_int8(finder, names, module, *codes, *scales)));
      }
    }
  }
  return {};
}

// --- torchao's Int4Tensor ----------------------------------------------------------------------

constexpr std::uint64_t kInt4Bits = 4;

// w = q * scale + zero_point with signed codes; scales and zero points are [K / group, N].
Status add_int4(MatrixFinder& finder, const std::string& module, const TensorView& codes,
                const TensorView& scales, const TensorView& minima) {
  auto matrix = packed_matrix(codes, kInt4Bits);
  if (!matrix) {
    return do_not_fit(codes, scales);
  }
  matrix->method = "torchao";
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, codes, kInt4Bits);
  matrix->codes.packing.flip = 1U << (kInt4Bits - 1);
  matrix->zero = middle_of(kInt4Bits);
  TRY(set_scale_table(finder, *matrix, transposed_view(scales), {1, std::nullopt}));
  matrix->minima = numbers_like_scales(finder, *matrix, transposed_view(minima));
  if (const auto* const factors = finder.find(module, kAoFactors)) {
    matrix->column_factors = finder.stored(*factors);
  }
  return finder.add(*std::move(matrix), module,
                    {"_weight_qdata", "_weight_scale", "_weight_zero_point", kAoFactors});
}

// Other weights of torchao have integers for zero points, and scales in the order of their rows.
Status find_int4_tensors(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("_weight_qdata")) {
    const TensorView& codes = *finder.find(module, "_weight_qdata");
    const TensorView* const scales = finder.find(module, "_weight_scale");
    const TensorView* const minima = finder.find(module, "_weight_zero_point");
    const bool are_bytes = codes.dtype == DType::kInt8 || codes.dtype == DType::kUInt8;
    if (are_bytes && has_rank(&codes, 2) && has_rank(scales, 2) && has_rank(minima, 2) &&
        is_floating(minima->dtype) && minima->shape == scales->shape &&
        dim(*scales, 1) == dim(codes, 0)) {
      TRY(finder.accept(add_int4(finder, module, codes, *scales, *minima)));
    }
  }
  return {};
}

// --- MLX ---------------------------------------------------------------------------------------

constexpr std::uint64_t kMlxMxGroup = 32;
constexpr std::uint64_t kMlxNvGroup = 16;

std::string mlx_mode(const QuantSettings& settings, const std::string& module) {
  const Json* const own = settings.config.find(module);
  const std::string* const text = own == nullptr ? nullptr : own->get<std::string>("mode");
  return text == nullptr ? settings.text("mode") : *text;
}

Status add_mlx(MatrixFinder& finder, const std::string& module, const TensorView& codes,
               const TensorView& scales) {
  auto bits = number_for(finder.settings(), module, "bits");
  const std::string mode = mlx_mode(finder.settings(), module);
  const TensorView* biases = finder.find(module, "biases");
  biases = biases == nullptr ? finder.find(module, "qbiases") : biases;
  if (!is_code_bits(bits)) {
    return needs_config(finder.settings(), codes, "MLX");
  }
  auto matrix = packed_matrix(codes, static_cast<std::uint64_t>(*bits));
  if (!matrix) {
    return do_not_fit(codes, scales);
  }
  matrix->method = "MLX";
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, codes, static_cast<std::uint32_t>(*bits));
  TensorView numbers = scales;
  if (mode == "nvfp4" && scales.dtype == DType::kUInt8) {
    numbers.dtype = DType::kFloat8E4M3Fn;
  }
  TRY(set_scale_table(finder, *matrix, numbers,
                      {1, number_for(finder.settings(), module, "group_size")}));
  TRY(check_said_group(finder, module, *matrix, codes, scales));
  if (biases != nullptr) {
    matrix->minima = numbers_like_scales(finder, *matrix, *biases);
  } else if (*bits == 4 && ((mode == "mxfp4" && matrix->group == kMlxMxGroup) ||
                            (mode == "nvfp4" && matrix->group == kMlxNvGroup))) {
    matrix->kind = CodeKind::kFloat4E2M1;
    matrix->table = float4_table();
  } else if (mode == "mxfp8" && *bits == 8 && matrix->group == kMlxMxGroup) {
    matrix->kind = CodeKind::kFloat8;
    matrix->table = float8_table(DType::kFloat8E4M3Fn);
  } else {
    return unsupported(quote(codes.name) + ": MLX's mode " + quote(mode) + " is not supported");
  }
  return finder.add(*std::move(matrix), module, {"weight", "scales", "biases", "qbiases"});
}

Status find_mlx(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("scales")) {
    const TensorView* const codes = finder.find(module, "weight");
    if (codes != nullptr && codes->dtype == DType::kUInt32) {
      TRY(finder.accept(add_mlx(finder, module, *codes, *finder.find(module, "scales"))));
    }
  }
  return {};
}

// --- Olive -------------------------------------------------------------------------------------

Status add_olive(MatrixFinder& finder, const std::string& module, const TensorView& codes,
                 const TensorView& scales) {
  const auto bits = number_for(finder.settings(), module, "bits");
  if (!is_code_bits(bits)) {
    return needs_config(finder.settings(), codes, "Olive");
  }
  const auto width = static_cast<std::uint32_t>(*bits);
  auto matrix = packed_matrix(codes, width);
  if (!matrix) {
    return do_not_fit(codes, scales);
  }
  matrix->method = "Olive";
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, codes, width);
  matrix->zero = middle_of(width);
  TRY(set_scale_table(finder, *matrix, scales,
                      {1, number_for(finder.settings(), module, "group_size")}));
  TRY(check_said_group(finder, module, *matrix, codes, scales));
  if (const TensorView* const zeros = finder.find(module, "qzeros"); zeros != nullptr) {
    QuantizedMatrix points = *matrix;
    points.columns = matrix->groups;
    matrix->zero_codes = codes_in_rows(finder, points, *zeros, width);
  }
  return finder.add(*std::move(matrix), module, {"qweight", "scales", "qzeros"});
}

Status find_olive(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("qweight")) {
    const TensorView* const codes = finder.find(module, "qweight");
    const TensorView* const scales = finder.find(module, "scales");
    if (codes->dtype == DType::kUInt8 && scales != nullptr) {
      TRY(finder.accept(add_olive(finder, module, *codes, *scales)));
    }
  }
  return {};
}

// --- Gemma -------------------------------------------------------------------------------------

// The bits of a module: the first pattern of the config that is found in its name, or those of all.
std::optional<std::int64_t> gemma_bits(const QuantSettings& settings, const std::string& module) {
  static const JsonObject kNone;
  const JsonObject* const patterns = settings.config.get<JsonObject>("module_quant_configs");
  for (const auto& [pattern, own] : patterns == nullptr ? kNone : *patterns) {
    if (is_found_in(pattern, module).value_or(false)) {
      const auto bits = json_integer(own.find("num_bits"));
      return bits ? bits : settings.integer("num_bits");
    }
  }
  return settings.integer("num_bits");
}

Status add_gemma(MatrixFinder& finder, const std::string& module, std::string_view part,
                 const TensorView& codes, const TensorView& scales) {
  const bool is_int8 = codes.dtype == DType::kInt8;
  const auto bits =
      is_int8 ? std::optional<std::int64_t>(8) : gemma_bits(finder.settings(), module);
  if (!is_code_bits(bits)) {
    return needs_config(finder.settings(), codes, "Gemma");
  }
  const auto width = static_cast<std::uint32_t>(*bits);
  auto matrix = packed_matrix(codes, width);
  if (!matrix) {
    return do_not_fit(codes, scales);
  }
  matrix->method = "Gemma";
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, codes, width);
  matrix->codes.packing.flip = is_int8 ? kSignBit : 0;
  matrix->zero = middle_of(width);
  TRY(set_scale_table(finder, *matrix, scales, {1, std::nullopt}));
  return finder.add(*std::move(matrix), module,
                    {part, "weight_scale", "embedding_scale", "input_activation_scale",
                     "output_activation_scale"});
}

Status find_gemma(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("embedding_quantized")) {
    const TensorView* const scales = finder.find(module, "embedding_scale");
    if (scales != nullptr) {
      TRY(finder.accept(add_gemma(finder, module, "embedding_quantized",
                                  *finder.find(module, "embedding_quantized"), *scales)));
    }
  }
  if (finder.settings().method != "gemma") {
    return {};
  }
  for (const std::string& module : finder.modules_with("weight_scale")) {
    const TensorView* const codes = finder.find(module, "weight");
    if (codes != nullptr && (codes->dtype == DType::kUInt8 || codes->dtype == DType::kInt8)) {
      TRY(finder.accept(
          add_gemma(finder, module, "weight", *codes, *finder.find(module, "weight_scale"))));
    }
  }
  return {};
}

}  // namespace

Status find_plain_integers(MatrixFinder& finder) {
  TRY(find_gemma(finder));
  TRY(find_int4_tensors(finder));
  TRY(find_int8(finder));
  TRY(find_mlx(finder));
  return find_olive(finder);
}

}  // namespace onnx_external
