// AWQ's layouts: "gemm", whose words hold codes of eight rows in an order of their own, and "gemv",
// whose words hold codes along K.
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kAwqBits = 4;
constexpr std::uint32_t kAwqPerWord = 8;

struct AwqParts {
  std::string module;
  const TensorView* codes = nullptr;
  const TensorView* zeros = nullptr;
  const TensorView* scales = nullptr;
};

std::optional<std::int64_t> awq_group(const QuantSettings& settings, const std::string& module) {
  const auto group = number_for(settings, module, "group_size");
  return group ? group : number_for(settings, module, "q_group_size");
}

bool is_gemm(const AwqParts& parts) {
  const std::uint64_t rows = dim(*parts.scales, 1);
  return dim(*parts.codes, 1) * kAwqPerWord == rows && dim(*parts.zeros, 1) * kAwqPerWord == rows &&
         dim(*parts.zeros, 0) == dim(*parts.scales, 0);
}

bool is_gemv(const AwqParts& parts) {
  return dim(*parts.codes, 0) == dim(*parts.scales, 0) &&
         dim(*parts.zeros, 0) == dim(*parts.scales, 0) &&
         dim(*parts.scales, 1) == dim(*parts.zeros, 1) * kAwqPerWord;
}

// Eight rows share a word, the even ones its lower half.
PackedCodes codes_of_eight_rows(const MatrixFinder& finder, const TensorView& words) {
  PackedCodes codes;
  codes.stored = finder.stored(transposed_view(words));
  codes.packing.bits = kAwqBits;
  codes.packing.word_bytes = sizeof(std::int32_t);
  codes.packing.axis = CodeAxis::kRows;
  codes.packing.cycle_bits = kAwqPerWord * kAwqBits;
  codes.packing.shifts.assign(kAwqShifts.begin(), kAwqShifts.end());
  codes.rows = dim(words, 1) * kAwqPerWord;
  codes.columns = dim(words, 0);
  codes.line_bytes = codes.columns * sizeof(std::int32_t);
  return codes;
}

Status add_gemm(MatrixFinder& finder, const AwqParts& parts) {
  QuantizedMatrix matrix;
  matrix.method = "AWQ";
  matrix.name = weight_name(parts.module);
  matrix.codes = codes_of_eight_rows(finder, *parts.codes);
  matrix.rows = matrix.codes.rows;
  matrix.columns = matrix.codes.columns;
  TRY(set_scale_table(finder, matrix, transposed_view(*parts.scales),
                      {1, awq_group(finder.settings(), parts.module)}));
  matrix.zero_codes = codes_of_eight_rows(finder, *parts.zeros);
  return finder.add(std::move(matrix), parts.module, {"qweight", "qzeros", "scales"});
}

TensorView first_columns(TensorView view, std::uint64_t columns) {
  view.shape[1] = static_cast<std::int64_t>(columns);
  return view;
}

Status add_gemv(MatrixFinder& finder, const AwqParts& parts) {
  const auto group = awq_group(finder.settings(), parts.module);
  QuantizedMatrix matrix;
  matrix.method = "AWQ";
  matrix.name = weight_name(parts.module);
  matrix.rows = dim(*parts.codes, 0);
  matrix.columns = dim(*parts.codes, 1) * kAwqPerWord;
  if (!group || *group < 1) {
    return fail(ErrorCode::kAmbiguous, quote(parts.scales->name) +
                                           " has padded rows, and its group size is not known; "
                                           "pass the folder, whose config states the group size");
  }
  const auto size = static_cast<std::uint64_t>(*group);
  const std::uint64_t groups = matrix.columns / size + (matrix.columns % size == 0 ? 0 : 1);
  if (groups > dim(*parts.scales, 1)) {
    return do_not_fit(*parts.codes, *parts.scales);
  }
  const TensorView scales = first_columns(*parts.scales, groups);
  TRY(set_scale_table(finder, matrix, scales, {1, group}));
  matrix.codes = codes_in_rows(finder, matrix, *parts.codes, kAwqBits);
  QuantizedMatrix zeros = matrix;
  zeros.columns = groups;
  const TensorView points = first_columns(*parts.zeros, (groups + kAwqPerWord - 1) / kAwqPerWord);
  matrix.zero_codes = codes_in_rows(finder, zeros, points, kAwqBits);
  return finder.add(std::move(matrix), parts.module, {"qweight", "qzeros", "scales"});
}

bool are_words(const TensorView* view) {
  return has_rank(view, 2) && view->dtype == DType::kInt32;
}

}  // namespace

Status find_awq(MatrixFinder& finder) {
  if (finder.settings().method == "gptq") {
    return {};
  }
  for (const std::string& module : finder.modules_with("qweight")) {
    const AwqParts parts{module, finder.find(module, "qweight"), finder.find(module, "qzeros"),
                         finder.find(module, "scales")};
    if (!are_words(parts.codes) || !are_words(parts.zeros) || !has_rank(parts.scales, 2)) {
      continue;
    }
    if (is_gemm(parts)) {
      TRY(finder.accept(add_gemm(finder, parts)));
    } else if (is_gemv(parts)) {
      TRY(finder.accept(add_gemv(finder, parts)));
    }
  }
  return {};
}

}  // namespace onnx_external
