// Computes the sum of a weight and the product of two small matrices, as for a LoRA adapter.
#pragma once

#include <cstdint>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The sum that lora_sum() computes: weight + scale * left @ right, with `rows` times `columns`
// elements. The sources supply elements in row-major order. The `rank` terms of each product are
// added in order and in double precision, so the result depends neither on the number of threads
// nor on the processor.
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

// Returns a source of the sums, rounded to the type of the weight. A read holds the matrix `right`
// in memory as float32.
[[nodiscard]] ReadSource lora_sum(LoraProduct product);

// Returns a source of the elements of `from`, converted to another float type.
[[nodiscard]] ReadSource converted(ReadSource from, DType type, DType to);

}  // namespace onnx_external
