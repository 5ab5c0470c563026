// Weights whose values are in blocks of GGUF tensors (block_types.h), as quantized matrices
// (quantized/quantized_matrix.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf/block_types.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A tensor of a GGUF file: rows of blocks, one after another.
struct BlockTensor {
  StoredTensor stored;  // of bytes: uint8, of any shape
  const BlockType* type = nullptr;
  std::uint64_t rows = 0;  // of all its matrices
  std::uint64_t columns = 0;
};

// The rows of GGUF tensors that make up a weight, in their order.
struct BlockRows {
  // They have one type and one shape. With several, row r is row r / n of tensor r % n: gpt-oss has
  // the rows of gate and up in turn.
  std::vector<BlockTensor> tensors = {};
  std::uint64_t first_row = 0;  // of each tensor

  // If not 0, the rows of a head, whose halves llama.cpp stores in turn: row i of half c of a head
  // is its row 2 * i + c. The weight has the first halves before the second ones. It has whole
  // heads, of one tensor.
  std::uint64_t head_rows = 0;

  // One float32, or one for each matrix, by which all values are multiplied (NVFP4).
  std::optional<StoredTensor> factors = {};
};

// The weight of `matrices` matrices of `rows` rows each. Its parts are the tensors and the factors.
// Reads the factors. kCorrupt if the rows are not inside the tensors, or what they have does not
// fit; errors of reading. Requires: the types are quantized.
[[nodiscard]] Result<QuantizedMatrix> block_matrix(std::string name, std::uint64_t matrices,
                                                   std::uint64_t rows, BlockRows source);

}  // namespace onnx_external
