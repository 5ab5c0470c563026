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
  std::uint64_t rows = 0;  // of all its matrices together
  std::uint64_t columns = 0;
};

// The rows of GGUF tensors that make up a weight, in the weight's order.
struct BlockRows {
  // Tensors of one type and one shape. If there are n of them, row r of the weight is row r / n of
  // tensor r % n: gpt-oss alternates the rows of gate and up.
  std::vector<BlockTensor> tensors = {};
  std::uint64_t first_row = 0;  // in each tensor

  // If not 0, the number of rows in an attention head. llama.cpp interleaves the two halves of a
  // head: row i of half c of the head is stored as its row 2 * i + c. In the weight, the first half
  // comes before the second. The weight then consists of whole heads of one tensor.
  std::uint64_t head_rows = 0;

  // Float32 factors of all values (NVFP4): one for the weight, or one for each matrix.
  std::optional<StoredTensor> factors = {};
};

// Returns a weight of `matrices` matrices with `rows` rows each, whose parts are the tensors and
// the factors. Reads the factors. kCorrupt if the rows are not inside the tensors, or the values in
// them do not fit; errors of reading. Requires: the types are quantized.
[[nodiscard]] Result<QuantizedMatrix> block_matrix(std::string name, std::uint64_t matrices,
                                                   std::uint64_t rows, BlockRows source);

}  // namespace onnx_external
