// Represents weights that GGUF files store in quantized blocks (block_types.h) as quantized
// matrices (quantized/quantized_matrix.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf/block_types.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A tensor in a GGUF file: rows of blocks, one after another.
struct BlockTensor {
  StoredTensor stored;  // the bytes: uint8, of any shape
  const BlockType* type = nullptr;
  std::uint64_t rows = 0;  // of all matrices together
  std::uint64_t columns = 0;
};

// The rows of GGUF tensors that make up a weight, in the weight's order.
struct BlockRows {
  // Tensors of equal type and shape. If there are n tensors, row r of the weight is row r / n of
  // tensor r % n. (In gpt-oss, for example, the rows of gate and up alternate.)
  std::vector<BlockTensor> tensors = {};
  std::uint64_t first_row = 0;  // in each tensor

  // If not 0, the number of rows in an attention head. llama.cpp interleaves the two halves of a
  // head: row i of half c is stored as row 2 * i + c of the head. In the weight, the first half
  // comes before the second. The weight must consist of whole heads of one tensor.
  std::uint64_t head_rows = 0;

  // Float32 factors by which values are multiplied (NVFP4): one for the weight, or one for each
  // matrix.
  std::optional<StoredTensor> factors = {};
};

// Returns a weight that consists of `matrices` matrices with `rows` rows each. Reads the factors.
// Fails with kCorrupt if the tensors or the factors have the wrong size, or the rows are not inside
// the tensors. Other errors are those of reading. Requires: the types are quantized.
[[nodiscard]] Result<QuantizedMatrix> block_matrix(std::string name, std::uint64_t matrices,
                                                   std::uint64_t rows, BlockRows source);

}  // namespace onnx_external
