// Converts a matrix that is quantized in the checkpoint to the saved form, row by row and without
// quantizing it again (tensor/quantize/kept_codes.h).
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

// Buffers that are reused from call to call. For use by one thread at a time.
struct KeptBuffers {
  IoBuffer lines;
  IoBuffer codes;
  IoBuffer scales;
  IoBuffer zero_points;
  BlockParts parts;
};

enum class KeptCodes : std::uint8_t { kMade, kLeftOut };

// The rows of a quantized matrix. Immutable; any number of threads may read. The checkpoint must
// outlive this object.
class KeptRows {
 public:
  // Opens a matrix, and reads the order of the columns and their factors. `view` is a tensor of the
  // checkpoint after its recipe, as rows x columns. `scales` is the element type of the saved
  // scales. `known` is the scheme, if an earlier call has determined it; in this case zero points
  // need not be read. Returns nullopt if the checkpoint stores the tensor as floats. Fails with
  // kUnsupported if no node can multiply by the codes; the message is the reason.
  [[nodiscard]] static Result<std::optional<KeptRows>> of(const Checkpoint& checkpoint,
                                                          const TensorView& view,
                                                          std::uint64_t columns, DType scales,
                                                          const Scheme* known = nullptr);

  [[nodiscard]] const Scheme& scheme() const { return form_.scheme; }
  [[nodiscard]] const std::shared_ptr<const KeptInputs>& inputs() const { return inputs_; }

  // Returns the range of a file that holds exactly the bytes of the codes of all rows, if there is
  // one.
  [[nodiscard]] std::optional<FileRange> stored_codes_range(const Checkpoint& checkpoint) const;

  // Returns a number of rows, at least `least`, that can be read efficiently in one call.
  [[nodiscard]] std::uint64_t chunk_rows(std::uint64_t least) const;
  // Returns whether make() needs its argument `tile`.
  [[nodiscard]] bool needs_tile() const;

  using Take = std::function<Status(std::uint64_t first_row, const PackedRows& made)>;
  // Converts the rows [first, first + count), and passes their parts to `take`, some rows at a
  // time. The rows of each part come in order, but a call may lack a part, which is then empty and
  // comes in another call. With kLeftOut, codes are not read, and their bytes are unspecified.
  // Errors are those of reading, of `take`, and of keep_rows(). Requires: `first` is a multiple of
  // chunk_rows(1).
  [[nodiscard]] Status make(std::uint64_t first, std::uint64_t count, KeptCodes codes,
                            IoBuffer& tile, KeptBuffers& buffers, const Take& take) const;

 private:
  // A dimension of the rows of the view: `size` rows that are `step` rows apart in the checkpoint.
  struct RowDim {
    std::uint64_t size = 1;
    std::uint64_t step = 1;
  };
  struct Run {
    std::uint64_t row = 0;  // counted over all matrices of the weight in the checkpoint
    std::uint64_t rows = 0;
  };
  // The way in which the bytes of the codes are produced.
  enum class Path : std::uint8_t {
    kCodes,   // each code is read and written separately
    kBytes,   // the stored bytes are copied, and bits are flipped if necessary
    kWords,   // codes are read from words with 4-bit codes of 8 rows
    kBlocks,  // codes are read together with the scales and terms of their blocks
  };

  // A part of the rows. Used if the view joins several matrices of the checkpoint.
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
  [[nodiscard]] std::uint64_t chunk_rows_of_pieces(std::uint64_t least) const;
  [[nodiscard]] Status make_from_pieces(std::uint64_t first, std::uint64_t count, KeptCodes codes,
                                        IoBuffer& tile, KeptBuffers& buffers,
                                        const Take& take) const;
  [[nodiscard]] Run run_at(std::uint64_t row, std::uint64_t most) const;
  [[nodiscard]] PackedRows room(std::uint64_t rows, KeptBuffers& buffers) const;
  [[nodiscard]] Status make_run(std::uint64_t first, const Run& run, KeptCodes codes,
                                BlockParts& parts, const PackedRows& out) const;
  [[nodiscard]] Status make_from_tiles(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                                       KeptBuffers& buffers, const Take& take) const;
  // Converts rows whose codes are in `lines`, which may be modified.
  [[nodiscard]] Status take_lines(std::uint64_t first, std::uint64_t rows,
                                  std::span<std::byte> lines, KeptBuffers& buffers,
                                  const Take& take) const;

  MatrixRows rows_;
  KeptForm form_;
  std::shared_ptr<const KeptInputs> inputs_;
  std::uint64_t first_row_ = 0;
  std::vector<RowDim> dims_;
  Path path_ = Path::kCodes;
  std::uint64_t line_rows_ = 1;  // rows in a line of `tiles_`, or of the tiles of any piece
  std::vector<Piece> pieces_;    // sorted by first row; if not empty, rows are read through pieces
  // Reads the stored words in tiles. Set if rows are spread over the storage.
  std::optional<TiledView> tiles_;
};

// Reads the zero points, and sets members of `stored` according to whether all of them are the
// middle of the codes, or all are integers. Very many zero points are classified by their type
// alone. Errors are those of reading.
[[nodiscard]] Status judge_zeros(const MatrixRows& rows, StoredCodes& stored);

}  // namespace onnx_external
