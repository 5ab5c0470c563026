// bitsandbytes: codes of a table (NF4, FP4) in blocks that run over the rows, and int8 rows.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/bad_input.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/number_reader.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxStateBytes = 4096;
constexpr double kLargestInt8 = 127;

struct BnbState {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t block = 0;
  std::uint64_t nested_block = 0;
  float nested_offset = 0;
};

std::uint64_t positive(const Json* value) {
  const auto number = json_integer(value);
  return number && *number > 0 ? static_cast<std::uint64_t>(*number) : 0;
}

double number_in(const Json* value) {
  const auto* const fraction = value == nullptr ? nullptr : std::get_if<double>(&value->value);
  return fraction != nullptr ? *fraction : static_cast<double>(json_integer(value).value_or(0));
}

// The state is JSON in a tensor of bytes.
Result<BnbState> read_state(const MatrixFinder& finder, const TensorView& view) {
  TRY_ASSIGN(const auto bytes, contiguous_nbytes(view.dtype, view.shape));
  if (view.dtype != DType::kUInt8 || bytes > kMaxStateBytes) {
    return corrupt(quote(view.name) + ": is not a bitsandbytes state");
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  TRY(finder.stored(view).read(0, std::as_writable_bytes(std::span(text))));
  TRY_ASSIGN_IN(quote(view.name), const auto json, parse_json(text));
  const JsonArray* const shape = json.get<JsonArray>("shape");
  BnbState state;
  if (shape != nullptr && shape->size() == 2) {
    state.rows = positive(&(*shape)[0]);
    state.columns = positive(&(*shape)[1]);
  }
  state.block = positive(json.find("blocksize"));
  state.nested_block = positive(json.find("nested_blocksize"));
  state.nested_offset = static_cast<float>(number_in(json.find("nested_offset")));
  if (state.rows == 0 || state.columns == 0 || state.block == 0) {
    return corrupt(quote(view.name) +
                   ": does not state the shape of a matrix, or lacks a block size");
  }
  return state;
}

Result<std::vector<float>> read_table(const MatrixFinder& finder, const TensorView* view,
                                      std::uint64_t count, const std::string& of) {
  if (view == nullptr || view->dtype != DType::kFloat32 || view->shape.size() != 1 ||
      dim(*view, 0) != count) {
    return corrupt(fmt::format("{}: its table of {} values is missing", quote(of), count));
  }
  TRY_ASSIGN(const auto values, read_first_numbers(finder.stored(*view), count));
  return std::vector<float>(values.begin(), values.end());
}

// Scales of blocks, which may be codes themselves.
Status set_absmax(MatrixFinder& finder, QuantizedMatrix& matrix, const std::string& module,
                  const BnbState& state, const TensorView& absmax) {
  matrix.group = std::gcd(matrix.columns, state.block);
  matrix.groups = matrix.columns / matrix.group;
  GroupNumbers& scales = matrix.scales;
  scales.stored = finder.stored(absmax);
  TRY_ASSIGN(scales.count, element_count(absmax.shape));
  scales.place = GroupPlace::kFlat;
  scales.block = state.block;
  if (absmax.dtype != DType::kUInt8) {
    return {};
  }
  const TensorView* const nested = finder.find(module, "weight.nested_absmax");
  if (nested == nullptr) {
    return corrupt(quote(absmax.name) + " has codes, but their scales are missing");
  }
  NestedNumbers numbers;
  TRY_ASSIGN(numbers.map,
             read_table(finder, finder.find(module, "weight.nested_quant_map"), 256, absmax.name));
  numbers.absmax = finder.stored(*nested);
  TRY_ASSIGN(numbers.count, element_count(nested->shape));
  numbers.block = state.nested_block;
  numbers.offset = state.nested_offset;
  scales.nested = std::move(numbers);
  return {};
}

Status add_4bit(MatrixFinder& finder, const std::string& module, const std::string& state_name) {
  constexpr std::uint32_t kBits = 4;
  const TensorView* const weight = finder.find(module, "weight");
  const TensorView* const absmax = finder.find(module, "weight.absmax");
  const TensorView* const state_view = finder.find(module, state_name);
  if (weight == nullptr || absmax == nullptr) {
    return corrupt(quote(state_view->name) + ": its weight or absmax is missing");
  }
  TRY_ASSIGN(const auto state, read_state(finder, *state_view));
  QuantizedMatrix matrix;
  matrix.method = "bitsandbytes";
  matrix.name = weight_name(module);
  matrix.rows = state.rows;
  matrix.columns = state.columns;
  matrix.kind = CodeKind::kTable;
  TRY_ASSIGN(matrix.table, read_table(finder, finder.find(module, "weight.quant_map"),
                                      std::uint64_t{1} << kBits, weight->name));
  matrix.codes.stored = finder.stored(*weight);
  matrix.codes.packing.bits = kBits;
  matrix.codes.packing.shifts = {kBits, 0};
  matrix.codes.rows = 1;
  matrix.codes.columns = state.rows * state.columns;
  TRY_ASSIGN(matrix.codes.line_bytes, contiguous_nbytes(weight->dtype, weight->shape));
  TRY(set_absmax(finder, matrix, module, state, *absmax));
  return finder.add(std::move(matrix), module,
                    {"weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax",
                     "weight.nested_quant_map", state_name});
}

// Old versions also stored weights in the order of a GPU kernel, which a number states.
Status check_row_format(const MatrixFinder& finder, const std::string& module) {
  const TensorView* const format = finder.find(module, "weight_format");
  if (format == nullptr) {
    return {};
  }
  std::byte number{};
  if (format->dtype != DType::kUInt8 || element_count(format->shape).value_or(0) != 1) {
    return corrupt(quote(format->name) + ": is not the number of a format");
  }
  TRY(finder.stored(*format).read(0, std::span(&number, 1)));
  return number == std::byte{0}
             ? Status()
             : unsupported(fmt::format("{}: format {}, an order of a GPU kernel, is not supported; "
                                       "save the model again with a newer bitsandbytes",
                                       quote(format->name), std::to_integer<int>(number)));
}

Status add_8bit(MatrixFinder& finder, const std::string& module, const TensorView& scales) {
  const TensorView* const weight = finder.find(module, "weight");
  auto matrix =
      weight == nullptr || weight->dtype != DType::kInt8 ? std::nullopt : matrix_of(*weight, 1);
  if (!matrix || scales.shape.size() != 1) {
    return corrupt(quote(scales.name) + ": its weight is missing, or is not an int8 matrix");
  }
  TRY(check_row_format(finder, module));
  matrix->method = "bitsandbytes";
  matrix->name = weight_name(module);
  matrix->codes = codes_in_rows(finder, *matrix, *weight, 8);
  matrix->codes.packing.flip = kSignBit;
  matrix->zero = kSignBit;
  TRY(set_scale_table(finder, *matrix, scales, {1, std::nullopt}));
  matrix->scales.divisor = kLargestInt8;
  return finder.add(*std::move(matrix), module, {"weight", "SCB", "weight_format"});
}

}  // namespace

Status find_bitsandbytes(MatrixFinder& finder) {
  for (const std::string_view table : {"nf4", "fp4"}) {
    const std::string state = "weight.quant_state.bitsandbytes__" + std::string(table);
    for (const std::string& module : finder.modules_with(state)) {
      TRY(finder.accept(add_4bit(finder, module, state)));
    }
  }
  for (const std::string& module : finder.modules_with("SCB")) {
    TRY(finder.accept(add_8bit(finder, module, *finder.find(module, "SCB"))));
  }
  return {};
}

}  // namespace onnx_external
