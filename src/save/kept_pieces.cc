// Rows whose codes come from several matrices of the checkpoint, such as the experts of a mixture,
// which are stacked and have their halves joined. The rows that come from one matrix are kept as if
// they were alone, by a scheme that suits all.
#include <algorithm>
#include <utility>

#include "base/bad_input.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "save/kept_rows.h"

namespace onnx_external {
namespace {

// Returns whether the codes of two matrices have the same number of bits and the same blocks.
bool same_blocks(Scheme a, const Scheme& b) {
  a.zero_points = b.zero_points;
  a.terms = b.terms;
  return a == b;
}

// Returns the scheme by which both can be kept, provided that they have the same blocks.
Scheme common_scheme(Scheme a, const Scheme& b) {
  a.terms = a.terms || b.terms;
  a.zero_points = (a.zero_points || b.zero_points) && !a.terms;
  return a;
}

}  // namespace

Result<std::optional<KeptRows>> KeptRows::of_joined(const Checkpoint& checkpoint,
                                                    const TensorView& view, std::uint64_t columns,
                                                    DType scales, const Scheme* known) {
  const FileContents& all = CheckpointAccess::contents(checkpoint).all;
  const auto views = all.joined.contains(view.storage)
                         ? rows_behind(all, view, static_cast<std::int64_t>(columns))
                         : std::nullopt;
  if (!views) {
    return unsupported("its rows are assembled from parts of the checkpoint's rows");
  }
  if (views->size() == 1) {
    return of(checkpoint, views->front(), columns, scales, known);
  }
  std::vector<Piece> pieces;
  std::optional<Scheme> common;
  bool is_common = true;
  for (const TensorView& part : *views) {
    TRY_ASSIGN(auto rows, of(checkpoint, part, columns, scales, known));
    if (!rows) {
      return unsupported("some of the weights that it consists of are floats in the checkpoint");
    }
    common = common ? common_scheme(*common, rows->scheme()) : rows->scheme();
    if (!same_blocks(*common, rows->scheme()) ||
        (!pieces.empty() && !suits(*rows, *pieces.front().rows))) {
      return unsupported("the weights that it consists of have different codes in the checkpoint");
    }
    is_common = is_common && *common == rows->scheme() &&
                (pieces.empty() || *common == pieces.front().rows->scheme());
    const std::uint64_t first =
        pieces.empty() ? 0 : pieces.back().first + pieces.back().rows->row_count();
    if (first % rows->line_rows_ != 0) {
      rows->read_without_tiles();
    }
    pieces.push_back({first, std::make_shared<const KeptRows>(*std::move(rows))});
  }
  if (!is_common) {
    return of_joined(checkpoint, view, columns, scales, &*common);
  }
  KeptRows joined = *pieces.front().rows;
  joined.path_ = Path::kCodes;
  joined.tiles_.reset();
  for (const Piece& piece : pieces) {
    joined.line_rows_ = std::max(joined.line_rows_, piece.rows->line_rows_);
  }
  joined.pieces_ = std::move(pieces);
  return std::optional(std::move(joined));
}

bool KeptRows::suits(const KeptRows& a, const KeptRows& b) {
  return a.form_.stored.values == b.form_.stored.values && *a.inputs_ == *b.inputs_;
}

void KeptRows::read_without_tiles() {
  path_ = path_ == Path::kWords ? Path::kCodes : path_;
  line_rows_ = 1;
  tiles_.reset();
}

// A chunk is as large as for the piece that needs the largest. If it begins inside a tile of
// another piece, that tile is read in two parts.
std::uint64_t KeptRows::chunk_rows_of_pieces(std::uint64_t least) const {
  for (const Piece& piece : pieces_) {
    least = std::max(least, piece.rows->chunk_rows(least));
  }
  return (least + line_rows_ - 1) / line_rows_ * line_rows_;
}

bool KeptRows::needs_tile() const {
  return tiles_.has_value() || std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
           return piece.rows->needs_tile();
         });
}

std::uint64_t KeptRows::row_count() const {
  std::uint64_t rows = 1;
  for (const RowDim& dim : dims_) {
    rows *= dim.size;
  }
  return rows;
}

Status KeptRows::make_from_pieces(std::uint64_t first, std::uint64_t count, KeptCodes codes,
                                  IoBuffer& tile, KeptBuffers& buffers, const Take& take) const {
  auto piece =
      std::upper_bound(pieces_.begin(), pieces_.end(), first,
                       [](std::uint64_t row, const Piece& next) { return row < next.first; });
  for (--piece; count > 0; ++piece) {
    const std::uint64_t some = std::min(count, piece->first + piece->rows->row_count() - first);
    TRY(piece->rows->make(
        first - piece->first, some, codes, tile, buffers,
        [&](std::uint64_t row, const PackedRows& made) { return take(piece->first + row, made); }));
    first += some;
    count -= some;
  }
  return {};
}

}  // namespace onnx_external
