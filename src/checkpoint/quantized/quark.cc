// The integers of Quark, and its FP4 with float scales. With a scale for each group, weights are
// stored transposed, [K, N]; otherwise [N, K]. A word has eight codes of 4 bits along the second
// axis, in the order of AWQ or in plain order, and one code of any other size.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kPackedBits = 4;
constexpr std::uint64_t kPerWord = 8;
constexpr std::uint32_t kBitsInByte = 8;

struct QuarkType {
  std::string_view name;
  std::uint32_t bits;
  bool is_signed;
  DType stored;
};
constexpr std::array kQuarkTypes = {
    QuarkType{"int2", 2, true, DType::kInt32}, QuarkType{"int4", 4, true, DType::kInt32},
    QuarkType{"uint4", 4, false, DType::kInt32}, QuarkType{"int8", 8, true, DType::kInt8},
    QuarkType{"uint8", 8, false, DType::kUInt8}};

struct QuarkParts {
  std::string module;
  const TensorView* codes = nullptr;
  const TensorView* scales = nullptr;
  const TensorView* zeros = nullptr;
  std::uint32_t bits = 0;
  std::uint8_t flip = 0;
  bool is_transposed = false;  // [K, N], with scales [K / group, N]
  bool is_plain = false;       // the first code of a word is in its lowest bits
  std::optional<std::int64_t> group = {};
};

bool is_code_type(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt8 || dtype == DType::kUInt8;
}

// The codes of a matrix whose first axis is that of the lines in `words`, or the second one if it
// is transposed.
PackedCodes quark_codes(const MatrixFinder& finder, const QuarkParts& parts,
                        const TensorView& words) {
  const bool is_packed = parts.bits == kPackedBits;
  PackedCodes codes;
  codes.packing.bits = parts.bits;
  codes.packing.flip = parts.flip;
  codes.packing.word_bytes = byte_size(words.dtype);
  codes.packing.cycle_bits = static_cast<std::uint32_t>(byte_size(words.dtype)) * kBitsInByte;
  if (is_packed && parts.is_plain) {
    codes.packing.shifts = {0, 4, 8, 12, 16, 20, 24, 28};
  } else if (is_packed) {
    codes.packing.shifts.assign(kAwqShifts.begin(), kAwqShifts.end());
  }
  codes.stored = finder.stored(parts.is_transposed ? transposed_view(words) : words);
  codes.rows = dim(words, 0);
  codes.columns = dim(words, 1) * (is_packed ? kPerWord : 1);
  codes.line_bytes = dim(words, 1) * byte_size(words.dtype);
  if (parts.is_transposed) {
    std::swap(codes.rows, codes.columns);
    codes.packing.axis = is_packed ? CodeAxis::kRows : CodeAxis::kColumns;
    codes.line_bytes = codes.columns * byte_size(words.dtype);
  }
  return codes;
}

// Zero points of rows, packed like codes.
PackedCodes packed_row_zeros(const MatrixFinder& finder, const QuarkParts& parts,
                             const QuantizedMatrix& matrix) {
  PackedCodes codes;
  codes.stored = finder.stored(*parts.zeros);
  codes.packing = matrix.codes.packing;
  codes.packing.axis = CodeAxis::kRows;
  codes.rows = matrix.rows;
  codes.columns = 1;
  codes.line_bytes = byte_size(parts.zeros->dtype);
  return codes;
}

void set_zeros(const MatrixFinder& finder, const QuarkParts& parts, QuantizedMatrix& matrix) {
  matrix.zero = parts.flip;
  if (parts.zeros == nullptr) {
    return;
  }
  const bool are_packed = parts.bits == kPackedBits && parts.zeros->dtype == DType::kInt32;
  if (are_packed && parts.is_transposed && has_rank(parts.zeros, 2)) {
    matrix.zero_codes = quark_codes(finder, parts, *parts.zeros);
  } else if (are_packed && has_rank(parts.zeros, 1)) {
    matrix.zero_codes = packed_row_zeros(finder, parts, matrix);
  } else {
    const bool turned = parts.is_transposed && has_rank(parts.zeros, 2);
    matrix.zeros =
        numbers_like_scales(finder, matrix, turned ? transposed_view(*parts.zeros) : *parts.zeros);
    matrix.zeros_offset = parts.flip;
  }
}

Status add_quark(MatrixFinder& finder, const QuarkParts& parts) {
  QuantizedMatrix matrix;
  matrix.method = "Quark";
  matrix.name = weight_name(parts.module);
  matrix.codes = quark_codes(finder, parts, *parts.codes);
  matrix.rows = matrix.codes.rows;
  matrix.columns = matrix.codes.columns;
  if (parts.is_transposed) {
    if (dim(*parts.scales, 1) != matrix.rows) {
      return do_not_fit(*parts.codes, *parts.scales);
    }
    TRY(set_scale_table(finder, matrix, transposed_view(*parts.scales), {1, parts.group}));
  } else {
    TRY(set_scale_table(finder, matrix, *parts.scales, {1, parts.group}));
  }
  set_zeros(finder, parts, matrix);
  return finder.add(std::move(matrix), parts.module,
                    {"weight", "weight_scale", "weight_zero_point", "input_scale",
                     "input_zero_point", "output_scale", "output_zero_point"});
}

Status add_quark_float4(MatrixFinder& finder, const QuarkParts& parts) {
  auto matrix = matrix_of(*parts.codes, 2);
  if (!matrix) {
    return do_not_fit(*parts.codes, *parts.scales);
  }
  matrix->method = "Quark";
  matrix->name = weight_name(parts.module);
  matrix->kind = CodeKind::kFloat4E2M1;
  matrix->table = float4_table();
  matrix->codes = codes_in_rows(finder, *matrix, *parts.codes, kPackedBits);
  TRY(set_scale_table(finder, *matrix, *parts.scales, {1, parts.group}));
  return finder.add(*std::move(matrix), parts.module, {"weight", "weight_scale", "input_scale"});
}

// Adds a module's weight, unless its type is none of those above.
Status add_typed(MatrixFinder& finder, QuarkParts parts, const std::string& type) {
  const auto* const known = std::find_if(kQuarkTypes.begin(), kQuarkTypes.end(),
                                         [&](const QuarkType& one) { return one.name == type; });
  if (known == kQuarkTypes.end()) {
    const bool is_float4 =
        type == "fp4" && is_floating(parts.scales->dtype) && byte_size(parts.scales->dtype) > 1;
    return is_float4 ? add_quark_float4(finder, parts) : Status();
  }
  if (parts.codes->dtype != known->stored) {
    return corrupt(fmt::format("{}: is {}, but the config says {}", quote(parts.codes->name),
                               torch_name(parts.codes->dtype), type));
  }
  parts.bits = known->bits;
  parts.flip = known->is_signed ? static_cast<std::uint8_t>(1U << (known->bits - 1)) : 0;
  parts.is_transposed = has_rank(parts.scales, 2);
  return add_quark(finder, parts);
}

// Checks that scales are those of rows, or of groups along rows.
Status check_axis(const QuantSettings& settings, const Json& weight, const std::string& module) {
  const auto* const scheme = weight.get<std::string>("qscheme");
  const auto axis = json_integer(weight.find("ch_axis"));
  const bool is_rows = scheme != nullptr && *scheme == "per_channel";
  const bool is_groups = scheme != nullptr && *scheme == "per_group";
  const bool is_known = !axis || (!is_rows && !is_groups) ||
                        (is_rows ? *axis == 0 || *axis == -2 : *axis == 1 || *axis == -1);
  return is_known ? Status()
                  : unsupported(fmt::format("{}: {} with ch_axis {} is not supported for {}",
                                            settings.place, *scheme, *axis, quote(module)));
}

}  // namespace

Status find_quark(MatrixFinder& finder) {
  const Json* const form = finder.settings().config.find("export");
  const std::string* const order =
      form == nullptr ? nullptr : form->get<std::string>("pack_method");
  for (const std::string& module : finder.modules_with("weight_scale")) {
    const Json* const weight = quark_weight(finder.settings(), module);
    const auto* const type = weight == nullptr ? nullptr : weight->get<std::string>("dtype");
    QuarkParts parts{module, finder.find(module, "weight"), finder.find(module, "weight_scale"),
                     finder.find(module, "weight_zero_point")};
    if (type != nullptr && has_rank(parts.codes, 2)) {
      TRY(check_axis(finder.settings(), *weight, module));
    }
    if (type != nullptr && has_rank(parts.codes, 2) && is_code_type(parts.codes->dtype)) {
      parts.group = json_integer(weight->find("group_size"));
      parts.is_plain = order != nullptr && *order == "order";
      TRY(finder.accept(add_typed(finder, std::move(parts), *type)));
    }
  }
  return {};
}

}  // namespace onnx_external
