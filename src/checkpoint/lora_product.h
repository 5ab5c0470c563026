// Computes the bytes of a weight to which the product of two small matrices is added.
#pragma once

#include <cstdint>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The formula that read_sum() computes: weight + scale * left @ right, of `rows` times `columns`
// elements. The sources give row-major elements; a product of `rank` terms is summed up in double
// precision, in their order, so the bytes depend neither on the threads nor on the processor.
struct LoraProduct {
  ReadSource weight;
  ReadSource left;   // rows x rank
  ReadSource right;  // rank x columns
  DType weight_type = DType::kFloat32;
  DType left_type = DType::kFloat32;
  DType right_type = DType::kFloat32;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t rank = 0;
  float scale = 1;
};

// A source of the sums, rounded to the type of the weight. Memory: the matrix `right` as float32,
// while it reads.
[[nodiscard]] ReadSource lora_sum(LoraProduct product);

// A source of the elements of `from` in another float type.
[[nodiscard]] ReadSource converted(ReadSource from, DType type, DType to);

}  // namespace onnx_external
