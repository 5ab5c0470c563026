// The pack-quantized integers of compressed-tensors (llm-compressor). Its other weights are read by
// float4.cc, float8.cc and plain_integers.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/number_reader.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t kWordBits = 32;

std::uint64_t words_of(std::uint64_t codes, std::uint64_t bits, bool dense) {
  const std::uint64_t each = kWordBits / bits;
  return dense ? (codes * bits + kWordBits - 1) / kWordBits : (codes + each - 1) / each;
}

// A code's bits, and whether words hold whole codes only, as old versions wrote them.
struct WordForm {
  std::uint64_t bits = 0;
  bool dense = true;
};

// Returns the numbers of bits that the config's groups allow for the module; all from 2 to 8 if
// there is no config.
std::vector<std::uint64_t> possible_bits(const QuantSettings& settings, const std::string& module) {
  std::vector<std::uint64_t> bits;
  for (const Json* const args : weight_args(settings, module)) {
    const auto number = json_integer(args->find("num_bits"));
    if (number && *number >= 1 && *number <= 8) {
      bits.push_back(static_cast<std::uint64_t>(*number));
    }
  }
  if (bits.empty()) {
    bits = {2, 3, 4, 5, 6, 7, 8};
  }
  std::sort(bits.begin(), bits.end());
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  return bits;
}

Result<WordForm> word_form(const MatrixFinder& finder, const std::string& module,
                           const TensorView& packed, std::uint64_t columns) {
  const std::uint64_t words = dim(packed, packed.shape.size() - 1);
  std::vector<WordForm> forms;
  for (const bool dense : {true, false}) {
    for (const std::uint64_t bits : possible_bits(finder.settings(), module)) {
      if (forms.empty() || forms.front().dense == dense) {
        if (words_of(columns, bits, dense) == words) {
          forms.push_back({bits, dense});
        }
      }
    }
  }
  if (forms.size() == 1) {
    return forms.front();
  }
  return forms.empty()
             ? corrupt(fmt::format("{} {}: rows of {} codes do not fit into its packed words",
                                   quote(packed.name), shape_text(packed.shape), columns))
             : fail(ErrorCode::kAmbiguous, quote(packed.name) +
                                               ": the number of bits per code is ambiguous; pass "
                                               "the folder, whose config.json states it");
}

CodePacking packing_of(const WordForm& form, CodeAxis axis) {
  CodePacking packing;
  packing.bits = static_cast<std::uint32_t>(form.bits);
  packing.axis = axis;
  packing.word_bytes = kWordBits / 8;
  packing.cycle_bits = form.dense ? packing.bits : kWordBits;
  for (std::uint32_t i = 1; !form.dense && i < kWordBits / packing.bits; ++i) {
    packing.shifts.push_back(i * packing.bits);
  }
  return packing;
}

// The columns that the tensor with the weight's shape states.
Result<std::uint64_t> stated_columns(const MatrixFinder& finder, const TensorView& shape,
                                     const TensorView& packed) {
  const bool is_integer = shape.dtype == DType::kInt64 || shape.dtype == DType::kInt32;
  const std::size_t rank = packed.shape.size();
  if (!is_integer || shape.shape != Shape{static_cast<std::int64_t>(rank)}) {
    return corrupt(quote(shape.name) + ": does not state the shape of a weight");
  }
  TRY_ASSIGN(const auto dims, read_integers(finder.stored(shape), rank));
  if (dims.back() < 1 ||
      !std::equal(dims.begin(), dims.end() - 1, packed.shape.begin(), packed.shape.end() - 1)) {
    return corrupt(fmt::format("{}: states the shape {}, but {} is {}", quote(shape.name),
                               shape_text(Shape(dims.begin(), dims.end())), quote(packed.name),
                               shape_text(packed.shape)));
  }
  return static_cast<std::uint64_t>(dims.back());
}

// Stacked experts have no tensor with their shape: their rows fill whole words.
Result<std::uint64_t> columns_of_words(const MatrixFinder& finder, const std::string& module,
                                       const TensorView& packed) {
  const auto bits = possible_bits(finder.settings(), module);
  const auto code_bits =
      checked_mul<std::uint64_t>(dim(packed, packed.shape.size() - 1), kWordBits);
  if (bits.size() != 1 || kWordBits % bits.front() != 0 || !code_bits) {
    return fail(ErrorCode::kAmbiguous,
                quote(packed.name) +
                    ": has no weight_shape next to it, and the number of bits per code is "
                    "ambiguous; pass the folder, whose config.json states it");
  }
  return *code_bits / bits.front();
}

// Zero points are packed along the rows.
Result<PackedCodes> packed_zeros(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                                 const TensorView& zeros, const WordForm& form) {
  const std::size_t rank = matrix.codes.stored.view.shape.size();
  const bool fills_words = matrix.matrices == 1 || matrix.rows * form.bits % kWordBits == 0;
  if (!has_rank(&zeros, rank) || zeros.dtype != DType::kInt32 || !fills_words) {
    return do_not_fit(matrix.codes.stored.view, zeros);
  }
  PackedCodes codes;
  codes.stored = finder.stored(zeros);
  codes.rows = matrix.all_rows();
  codes.columns = matrix.groups;
  codes.line_bytes = dim(zeros, rank - 1) * sizeof(std::int32_t);
  const bool dense = dim(zeros, rank - 2) == words_of(matrix.rows, form.bits, true);
  codes.packing = packing_of({form.bits, dense}, CodeAxis::kRows);
  return codes;
}

constexpr std::array kOtherParts = {"input_scale"sv,  "input_zero_point"sv,  "input_global_scale"sv,
                                    "output_scale"sv, "output_zero_point"sv, "weight"sv};

// `begin`: the beginning of the names of the parts of a weight: "MODULE.weight_" or "NAME_".
Status add_packed(MatrixFinder& finder, const std::string& module, const std::string& begin,
                  const std::string& name, const TensorView& packed, const TensorView& scales) {
  auto found = matrix_of(packed, 1);
  const TensorView* const shape = finder.find(begin + "shape");
  if (!found || (shape == nullptr && packed.shape.size() == 2)) {
    return do_not_fit(packed, scales);
  }
  QuantizedMatrix matrix = *std::move(found);
  const std::uint64_t words = matrix.columns;
  TRY_ASSIGN(matrix.columns, shape == nullptr ? columns_of_words(finder, module, packed)
                                              : stated_columns(finder, *shape, packed));
  matrix.method = "compressed-tensors";
  matrix.name = name;
  if (matrix.columns / kWordBits > words) {
    return do_not_fit(packed, *shape);
  }
  TRY_ASSIGN(const auto form, word_form(finder, module, packed, matrix.columns));
  matrix.codes.stored = finder.stored(packed);
  matrix.codes.packing = packing_of(form, CodeAxis::kColumns);
  matrix.codes.rows = matrix.all_rows();
  matrix.codes.columns = matrix.columns;
  matrix.codes.line_bytes = words * sizeof(std::int32_t);
  TRY(set_scale_table(finder, matrix, scales,
                      said_block(finder.settings(), module, {1, std::nullopt})));
  matrix.zero = static_cast<double>(std::uint64_t{1} << (form.bits - 1));
  if (const TensorView* const zeros = finder.find(begin + "zero_point");
      zeros != nullptr && zeros->dtype == DType::kInt8) {  // one for the whole weight is not packed
    matrix.zeros = numbers_like_scales(finder, matrix, *zeros);
    matrix.zeros_offset = matrix.zero;
  } else if (zeros != nullptr) {
    TRY_ASSIGN(matrix.zero_codes, packed_zeros(finder, matrix, *zeros, form));
  }
  if (const TensorView* const order = finder.find(begin + "g_idx"); order != nullptr) {
    matrix.group_index = finder.stored(*order);
  }
  std::vector<std::string> parts;
  for (const std::string_view part : {"packed", "scale", "shape", "zero_point", "g_idx"}) {
    parts.push_back(begin + std::string(part));
  }
  for (const std::string_view part : kOtherParts) {
    parts.push_back(module.empty() ? std::string(part) : module + "." + std::string(part));
  }
  return finder.add(whole_matrix(std::move(matrix)), parts);
}

// Stacked experts may have no module of their own: "experts.gate_up_proj_packed".
Status find_stacked(MatrixFinder& finder) {
  for (const std::string& name : finder.names_before("_packed")) {
    const TensorView* const packed = finder.find(name + "_packed");
    const TensorView* const scales = finder.find(name + "_scale");
    if (scales != nullptr && has_rank(packed, 3) && packed->dtype == DType::kInt32) {
      TRY(finder.accept(add_packed(finder, name, name + "_", name, *packed, *scales)));
    }
  }
  return {};
}

}  // namespace

Status find_compressed_tensors(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("weight_packed")) {
    const TensorView* const packed = finder.find(module, "weight_packed");
    const TensorView* const scales = finder.find(module, "weight_scale");
    if (scales != nullptr && packed->dtype == DType::kInt32) {
      const std::string begin = module.empty() ? "weight_" : module + ".weight_";
      TRY(finder.accept(
          add_packed(finder, module, begin, weight_name(module, *packed), *packed, *scales)));
    }
  }
  return finder.settings().is_given() ? find_stacked(finder) : Status();
}

}  // namespace onnx_external
