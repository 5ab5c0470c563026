// FP4 weights: MXFP4 of gpt-oss, DeepSeek, Quark, torchao and compressed-tensors (scales are powers
// of two, for 32 values), and NVFP4 (float8 scales for 16 values, and one for the whole: a factor
// with ModelOpt and torchao, a divisor with compressed-tensors).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/number_reader.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kMxGroup = 32;
constexpr std::int64_t kNvGroup = 16;
constexpr std::uint64_t kPerByte = 2;
constexpr std::uint32_t kFloat4Bits = 4;

// Weights of real models are below the first; one convention read as the other makes them larger.
constexpr double kLargestWeight = 1000;
constexpr double kLargestFloat4 = 6;
constexpr std::uint64_t kScalesRead = 4096;

// The names of a library, and what it does with the scale of the whole.
struct Float4Names {
  std::string_view codes;
  std::string_view scales;
  std::string_view second;
  bool divides;
  bool needs_second;  // with float8 scales
  std::string_view method;
};

constexpr std::array kFloat4Names = {
    Float4Names{"weight_packed", "weight_scale", "weight_global_scale", true, true,
                "compressed-tensors"},
    Float4Names{"weight", "weight_scale", "weight_scale_2", false, true, "ModelOpt"},
    Float4Names{"weight", "scale", "", false, false, "MXFP4"},
    Float4Names{"_weight_qdata", "_weight_scale", "_weight_per_tensor_scale", false, false,
                "torchao"},
};

bool holds_pairs(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kFloat4E2M1FnX2;
}

// The size of the groups that have these scales, by the type and number of the scales: 32 columns
// if they are exponents, or 16; with float8 scales, ModelOpt also has groups of 32.
std::optional<std::int64_t> group_of_scales(const QuantizedMatrix& matrix,
                                            const TensorView& scales) {
  const std::size_t rank = scales.shape.size();
  const bool is_mx = is_exponent(scales.dtype);
  if (!is_mx && scales.dtype != DType::kFloat8E4M3Fn) {
    return std::nullopt;
  }
  for (const std::int64_t group : {is_mx ? kMxGroup : kNvGroup, kMxGroup}) {
    const auto size = static_cast<std::uint64_t>(group);
    const std::uint64_t groups = (matrix.columns + size - 1) / size;
    if ((dim(scales, rank - 2) == matrix.rows && dim(scales, rank - 1) == groups) ||
        is_tiled(scales, matrix.rows, groups)) {
      return group;
    }
  }
  return std::nullopt;
}

// A matrix of two codes a byte, if the scales are those of FP4 by their type and number.
std::optional<QuantizedMatrix> float4_matrix(const TensorView& codes, const TensorView& scales) {
  auto matrix = holds_pairs(codes.dtype) ? matrix_of(codes, kPerByte) : std::nullopt;
  const std::size_t rank = codes.shape.size();
  if (!matrix || !has_rank(&scales, rank) ||
      !std::equal(codes.shape.begin(), codes.shape.end() - 2, scales.shape.begin())) {
    return std::nullopt;
  }
  if (!group_of_scales(*matrix, scales)) {
    return std::nullopt;
  }
  matrix->kind = CodeKind::kFloat4E2M1;
  matrix->table = float4_table();
  return matrix;
}

// Returns whether values must be divided by the scale of the whole tensor. The scale's name says
// so, but some files use the other convention, which would result in weights of several thousand.
Result<bool> second_divides(MatrixFinder& finder, const QuantizedMatrix& matrix, bool by_name) {
  const std::uint64_t count = std::min(matrix.scales.count, kScalesRead);
  TRY_ASSIGN(const auto second,
             read_first_numbers(*matrix.scales.second, matrix.scales.second_count));
  TRY_ASSIGN(const auto scales, read_first_numbers(matrix.scales.stored, count));
  const double largest = kLargestFloat4 * *std::max_element(scales.begin(), scales.end());
  const double factor = second.front();
  if (!(factor > 0) || !std::isfinite(factor)) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: the scale of the whole weight is {}",
                                                 quote(matrix.scales.second->view.name), factor));
  }
  const double named = by_name ? largest / factor : largest * factor;
  const double other = by_name ? largest * factor : largest / factor;
  if (!(named > kLargestWeight) || other > kLargestWeight) {
    return by_name;
  }
  finder.note(fmt::format(
      "{} is {}: {} by it, as its name suggests, would give weights up to {:.0f}; the weights are "
      "{} it instead",
      quote(matrix.scales.second->view.name), factor, by_name ? "dividing" : "multiplying", named,
      by_name ? "multiplied by" : "divided by"));
  return !by_name;
}

Status add_float4(MatrixFinder& finder, const Float4Names& names, const std::string& module,
                  QuantizedMatrix matrix, const TensorView& codes, const TensorView& scales) {
  TRY(check_no_zeros(finder, module));
  matrix.method = names.method;
  matrix.name = weight_name(module, codes);
  matrix.codes = codes_in_rows(finder, matrix, codes, kFloat4Bits);
  TRY(set_tiled_scales(finder, matrix, scales, group_of_scales(matrix, scales).value_or(kNvGroup)));
  const TensorView* const second =
      names.second.empty() ? nullptr : finder.find(module, names.second);
  if (second != nullptr) {
    matrix.scales.second = finder.stored(*second);
    TRY_ASSIGN(matrix.scales.second_count, element_count(second->shape));
    TRY(check_matrix(matrix));
    TRY_ASSIGN(matrix.scales.second_divides, second_divides(finder, matrix, names.divides));
  } else if (!is_exponent(scales.dtype) && names.needs_second) {
    return fail(ErrorCode::kCorrupt, quote(scales.name) + " has no " + std::string(names.second) +
                                         " next to it, which NVFP4 needs");
  }
  return finder.add(
      std::move(matrix), module,
      {names.codes, names.scales, names.second, "weight_shape", "input_scale", "input_global_scale",
       "input_zero_point", "weight_zero_point", "_weight_act_per_tensor_scale"});
}

// gpt-oss: NAME_blocks [E, N, K / 32, 16] and NAME_scales [E, N, K / 32]. transformers has the
// weights of each expert transposed.
Status add_blocks(MatrixFinder& finder, const std::string& name, const TensorView& blocks,
                  const TensorView& scales) {
  constexpr std::size_t kRank = 4;
  constexpr std::int64_t kBlockBytes = 16;
  if (!has_rank(&blocks, kRank) || blocks.shape.back() != kBlockBytes ||
      blocks.dtype != DType::kUInt8 || scales.dtype != DType::kUInt8 ||
      scales.shape != Shape(blocks.shape.begin(), blocks.shape.end() - 1)) {
    return do_not_fit(blocks, scales);
  }
  TensorView flat = blocks;  // only its shape is looked at
  flat.shape = {blocks.shape[0], blocks.shape[1], blocks.shape[2] * kBlockBytes};
  auto matrix = matrix_of(flat, kPerByte);
  if (!matrix) {
    return do_not_fit(blocks, scales);
  }
  matrix->method = "MXFP4";
  matrix->name = name;
  matrix->kind = CodeKind::kFloat4E2M1;
  matrix->table = float4_table();
  matrix->codes = codes_in_rows(finder, *matrix, blocks, kFloat4Bits);
  TensorView table = scales;
  if (matrix->matrices == 1) {
    table.shape.erase(table.shape.begin());
  }
  TRY(set_scale_table(finder, *matrix, table, {1, kMxGroup}));
  matrix->scales.stored = finder.stored(scales);
  FoundMatrix found;
  found.shape = {blocks.shape[0], static_cast<std::int64_t>(matrix->columns), blocks.shape[1]};
  found.transposed = true;
  found.matrix = *std::move(matrix);
  return finder.add(std::move(found), {name + "_blocks", name + "_scales"});
}

}  // namespace

Status find_float4(MatrixFinder& finder) {
  for (const std::string& name : finder.names_before("_blocks")) {
    const TensorView* const scales = finder.find(name + "_scales");
    if (scales != nullptr) {
      TRY(finder.accept(add_blocks(finder, name, *finder.find(name + "_blocks"), *scales)));
    }
  }
  for (const Float4Names& names : kFloat4Names) {
    for (const std::string& module : finder.modules_with(names.codes)) {
      const TensorView* const codes = finder.find(module, names.codes);
      const TensorView* const scales = finder.find(module, names.scales);
      auto matrix = scales == nullptr ? std::nullopt : float4_matrix(*codes, *scales);
      if (matrix) {
        TRY(finder.accept(add_float4(finder, names, module, *std::move(matrix), *codes, *scales)));
      }
    }
  }
  return {};
}

}  // namespace onnx_external
