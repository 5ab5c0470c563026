// Weights whose bytes hold codes of several rows: those of ModelOpt's int4 and of BitNet.
#include <string>

#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

// ModelOpt's int4: rows 2 i and 2 i + 1 share a byte, in two's complement.
Status add_modelopt(MatrixFinder& finder, const std::string& module, const TensorView& codes,
                    const TensorView& scales) {
  constexpr std::uint32_t kBits = 4;
  constexpr std::uint8_t kSignOf4 = 8;
  QuantizedMatrix matrix;
  matrix.method = "ModelOpt";
  matrix.name = weight_name(module);
  matrix.rows = 2 * dim(codes, 0);
  matrix.columns = dim(codes, 1);
  matrix.codes = codes_in_rows(finder, matrix, codes, kBits);
  matrix.codes.packing.axis = CodeAxis::kRows;
  matrix.codes.packing.flip = kSignOf4;
  matrix.codes.line_bytes = matrix.columns;
  matrix.zero = kSignOf4;
  const auto group = finder.settings().integer("group_size");
  TRY(set_scale_table(finder, matrix, scales, {1, group}));
  return finder.add(std::move(matrix), module,
                    {"weight", "weight_scale", "weight_scale_2", "input_scale"});
}

// BitNet: row i of quarter p of the rows has bits 2 p of a byte; codes 0, 1 and 2 stand for -1, 0
// and 1. A BitLinear divides by the scale, an AutoBitLinear multiplies.
Status add_bitnet(MatrixFinder& finder, const std::string& module, const TensorView& codes,
                  const TensorView& scale) {
  constexpr std::uint64_t kRowsInByte = 4;
  QuantizedMatrix matrix;
  matrix.method = "BitNet";
  matrix.name = weight_name(module);
  matrix.rows = kRowsInByte * dim(codes, 0);
  matrix.columns = dim(codes, 1);
  matrix.codes = codes_in_rows(finder, matrix, codes, 2);
  matrix.codes.packing.axis = CodeAxis::kRows;
  matrix.codes.packing.cycle_bits = 8;
  matrix.codes.packing.shifts = {0, 2, 4, 6};
  matrix.codes.packing.parts = kRowsInByte;
  matrix.codes.packing.part = dim(codes, 0);
  matrix.codes.line_bytes = matrix.columns;
  matrix.zero = 1;
  TRY(set_scale_table(finder, matrix, scale, {1, std::nullopt}));
  matrix.scales.inverse = finder.settings().text("linear_class") != "autobitlinear";
  return finder.add(std::move(matrix), module, {"weight", "weight_scale"});
}

}  // namespace

Status find_rows_in_bytes(MatrixFinder& finder) {
  const bool is_bitnet = finder.settings().method == "bitnet";
  for (const std::string& module : finder.modules_with("weight_scale")) {
    const TensorView* const codes = finder.find(module, "weight");
    const TensorView* const scales = finder.find(module, "weight_scale");
    if (!has_rank(codes, 2) || codes->dtype != DType::kUInt8 || !is_floating(scales->dtype)) {
      continue;
    }
    if (is_bitnet && element_count(scales->shape).value_or(0) == 1) {
      TRY(finder.accept(add_bitnet(finder, module, *codes, *scales)));
    } else if (has_rank(scales, 2) && dim(*scales, 0) == 2 * dim(*codes, 0)) {
      TRY(finder.accept(add_modelopt(finder, module, *codes, *scales)));
    }
  }
  return {};
}

}  // namespace onnx_external
