// Reads the rows of a weight from the tensors of a GGUF file: in their order, as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf/block_types.h"
#include "onnx_external/checkpoint.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// A stored tensor that rows are read from. All of it lies in the file.
struct GgufPlace {
  std::shared_ptr<const SourceFile> file;
  std::uint64_t offset = 0;  // of the first row
  ByteOrder order = ByteOrder::kLittle;
  // Each value of row n is multiplied by factors[n / factor_rows]; empty: by none.
  std::vector<float> factors;
  std::uint64_t factor_rows = 1;
};

// The rows of a weight, in the order that GgufWeight describes.
struct GgufRows {
  const BlockType* type = nullptr;  // of all places; has_floats() unless it is plain
  std::vector<GgufPlace> from;      // at least one; the rows of several alternate
  std::uint64_t columns = 0;        // whole blocks
  std::uint64_t first_row = 0;      // of each place
  std::uint64_t rows = 0;           // of each place
  std::uint64_t heads = 0;
  bool minus_one = false;

  [[nodiscard]] std::uint64_t all_rows() const { return rows * from.size(); }
  [[nodiscard]] std::uint64_t row_bytes() const { return columns / type->values * type->bytes; }

  // Which row of which place row `row` is.
  [[nodiscard]] std::size_t place_of(std::uint64_t row) const {
    return static_cast<std::size_t>(row % from.size());
  }
  [[nodiscard]] std::uint64_t stored_row(std::uint64_t row) const;

  // Whether values are computed: they are float32 then, otherwise numbers of type->plain.
  [[nodiscard]] bool is_computed() const;
  // Whether the rows are one range of a file, in their order.
  [[nodiscard]] bool is_plain() const;
};

// Columns [column, column + columns), whole blocks, of rows [row, row + rows).
struct GgufWindow {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t column = 0;
  std::uint64_t columns = 0;
};

// Calls `use` with the bytes of each row of a window, in order. Rows that are neighbours in the
// file are read together. Takes about 1 MiB of memory, and the bytes of one row of the window.
// kIo, kCorrupt, and errors of `use`.
using UseRow = std::function<Status(std::uint64_t row, std::span<const std::byte> bytes)>;
[[nodiscard]] Status read_gguf_rows(const GgufRows& rows, const GgufWindow& window,
                                    const UseRow& use);

// The bytes of the weight, row-major and little-endian.
[[nodiscard]] ReadSource gguf_values(GgufRows rows);

}  // namespace onnx_external
