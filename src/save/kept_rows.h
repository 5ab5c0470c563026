// Reads the codes of a matrix that is quantized in the checkpoint, row by row, and makes the bytes
// that are saved, without quantizing again (tensor/quantize/kept_codes.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/io_buffer.h"
#include "checkpoint/quantized/matrix_rows.h"
#include "checkpoint/storage/tiled_view.h"
#include "onnx/matrix_choice.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "tensor/quantize/kept_codes.h"

namespace onnx_external {

// Reused from call to call. One thread at a time.
struct KeptBuffers {
  IoBuffer lines;
  IoBuffer codes;
  IoBuffer scales;
  IoBuffer zero_points;
};

enum class KeptCodes : std::uint8_t { kMade, kLeftOut };

// Immutable; any number of threads may read. The checkpoint must outlive it.
class KeptRows {
 public:
  // `view`: rows x columns of a tensor of the checkpoint, after a recipe. `scales`: the type that
  // scales get. Nullopt if the checkpoint has the tensor as floats. kUnsupported if no node
  // multiplies by its codes: the message is the reason. Reads the order of the columns, and their
  // factors. `known`: the scheme, if an earlier call found it; then zero points are not read to
  // find it.
  [[nodiscard]] static Result<std::optional<KeptRows>> of(const Checkpoint& checkpoint,
                                                          const TensorView& view,
                                                          std::uint64_t columns, DType scales,
                                                          const Scheme* known = nullptr);

  [[nodiscard]] const Scheme& scheme() const { return form_.scheme; }
  [[nodiscard]] const std::shared_ptr<const KeptInputs>& inputs() const { return inputs_; }

  // The bytes of the codes of all rows, if the checkpoint has exactly these bytes in one range of a
  // file.
  [[nodiscard]] std::optional<FileRange> stored_codes_range(const Checkpoint& checkpoint) const;

  // The rows that are well read at once, if at least `least` are.
  [[nodiscard]] std::uint64_t chunk_rows(std::uint64_t least) const;
  // Returns whether make() needs its tile.
  [[nodiscard]] bool needs_tile() const { return tiles_.has_value(); }

  using Take = std::function<Status(std::uint64_t first_row, const PackedRows& made)>;
  // Makes the parts of the rows [first, first + count) and passes them on in order, some at a time.
  // With kLeftOut, the bytes of codes have no meaning, and nothing is read for them. Errors of
  // reading, of `take`, and of keep_rows(). Requires: first is a multiple of chunk_rows(1).
  [[nodiscard]] Status make(std::uint64_t first, std::uint64_t count, KeptCodes codes,
                            IoBuffer& tile, KeptBuffers& buffers, const Take& take) const;

 private:
  // Rows of the view, outermost first: `size` of them, `step` rows of the checkpoint apart.
  struct RowDim {
    std::uint64_t size = 1;
    std::uint64_t step = 1;
  };
  struct Run {
    std::uint64_t row = 0;  // of the checkpoint's matrices
    std::uint64_t rows = 0;
  };
  // The way in which the bytes of codes are made.
  enum class Path : std::uint8_t {
    kCodes,   // each code by itself
    kBytes,   // the stored bytes are kept, apart from flipped bits
    kWords,   // of 4 bits, in words that hold codes of 8 rows
    kBlocks,  // with the scales and terms of its blocks
  };

  // Rows that are not those of one matrix of the checkpoint.
  struct Piece {
    std::uint64_t first = 0;
    std::shared_ptr<const KeptRows> rows;
  };

  KeptRows(MatrixRows rows, KeptForm form) : rows_(std::move(rows)), form_(std::move(form)) {}
  [[nodiscard]] static Result<std::optional<KeptRows>> of_joined(const Checkpoint& checkpoint,
                                                                 const TensorView& view,
                                                                 std::uint64_t columns,
                                                                 DType scales, const Scheme* known);
  [[nodiscard]] Status find_rows(const TensorView& view);
  void choose_path(const Checkpoint& checkpoint);
  [[nodiscard]] static bool suits(const KeptRows& a, const KeptRows& b);
  void read_without_tiles();
  [[nodiscard]] std::uint64_t row_count() const;
  [[nodiscard]] Status make_from_pieces(std::uint64_t first, std::uint64_t count, KeptCodes codes,
                                        IoBuffer& tile, KeptBuffers& buffers,
                                        const Take& take) const;
  [[nodiscard]] Run run_at(std::uint64_t row, std::uint64_t most) const;
  [[nodiscard]] PackedRows room(std::uint64_t rows, KeptBuffers& buffers) const;
  [[nodiscard]] Status make_run(std::uint64_t first, const Run& run, KeptCodes codes,
                                const PackedRows& out) const;
  [[nodiscard]] Status make_from_tiles(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                                       KeptBuffers& buffers, const Take& take) const;
  // May change the lines.
  [[nodiscard]] Status take_lines(std::uint64_t first, std::uint64_t rows,
                                  std::span<std::byte> lines, KeptBuffers& buffers,
                                  const Take& take) const;

  MatrixRows rows_;
  KeptForm form_;
  std::shared_ptr<const KeptInputs> inputs_;
  std::uint64_t first_row_ = 0;
  std::vector<RowDim> dims_;
  Path path_ = Path::kCodes;
  std::uint64_t line_rows_ = 1;     // of a line of `tiles_`
  std::vector<Piece> pieces_;       // by their first rows; if there are any, only they are read
  std::optional<TiledView> tiles_;  // of the stored words, if they run across the storage
};

}  // namespace onnx_external
