#include "checkpoint/storage/tiled_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/element_reader.h"
#include "tensor/cast.h"
#include "tensor/strided_gather.h"

namespace onnx_external {
namespace {

// Smaller matrices are read directly.
constexpr std::uint64_t kMinTiledBytes = std::uint64_t{1} << 20;
// Values are converted in chunks that stay in the L2 cache.
constexpr std::uint64_t kCastBytes = std::uint64_t{128} << 10;

// Room for any tile, with the lines between its rows (spread_rows). It is taken at once: tiles of
// several sizes made buffers grow, and four threads needed 79 MiB instead of 64, for the allocator
// keeps what was given back. What no tile reaches is never touched, so it takes no memory.
constexpr std::uint64_t kTileRoom = kTileBytes + kTileBytes / 8;

constexpr std::uint64_t kScratchBytes = std::max(kGatherScratchBytes, kWordRowsScratchBytes);

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLeastRows = 64;

}  // namespace

std::optional<TiledView> TiledView::of(const Checkpoint& checkpoint, const TensorView& view,
                                       std::optional<DType> cast_to, TileShape shape) {
  if (*element_count(view.shape) == 0) {
    return std::nullopt;
  }
  std::vector<StridedDim> dims = merged_dims(view);
  if (dims.size() < 2 || dims[dims.size() - 2].stride != 1 || dims.back().stride < 2) {
    return std::nullopt;
  }
  TiledView tiled(checkpoint, view, cast_to);
  tiled.unit_ = byte_size(view.dtype);
  tiled.out_unit_ = byte_size(cast_to.value_or(view.dtype));
  tiled.columns_ = dims.back();
  tiled.rows_ = dims[dims.size() - 2];
  dims.resize(dims.size() - 2);
  tiled.matrices_ = std::move(dims);
  if (tiled.rows_.size * tiled.columns_.size * tiled.unit_ <= kMinTiledBytes) {
    return std::nullopt;
  }
  tiled.choose_tile(shape);
  return tiled;
}

std::optional<TiledView> TiledView::of_word_rows(const Checkpoint& checkpoint,
                                                 const TensorView& view, const WordRows& rows) {
  auto tiled = of(checkpoint, view, std::nullopt, TileShape::kWholeRows);
  if (!tiled || !tiled->matrices_.empty() || tiled->tile_columns_ != tiled->columns_.size ||
      !has_word_rows(checkpoint.storages()[view.storage], view)) {
    return std::nullopt;
  }
  tiled->word_rows_ = rows;
  return tiled;
}

// The cost of a byte in nanoseconds, as measured (docs/measurements.md). Narrow tiles are read
// together with the bytes between their columns, which is cheaper than a system call per column.
// Each written run takes a call of its own unless rows are contiguous.
double TiledView::cost(std::uint64_t rows, std::uint64_t columns) const {
  constexpr double kReadByte = 0.055;
  constexpr double kReadCall = 1000;
  constexpr double kWriteCall = 2200;
  const std::uint64_t window = rows * unit_;
  const std::uint64_t pitch = columns_.stride * unit_;
  const auto bytes = static_cast<double>(window);
  const double reading = pitch <= window + kReadOverGapBytes
                             ? kReadByte * static_cast<double>(pitch) / bytes
                             : kReadCall / bytes + 4 * kReadByte;
  return columns == columns_.size ? reading
                                  : reading + kWriteCall / static_cast<double>(columns * out_unit_);
}

void TiledView::choose_tile(TileShape shape) {
  const bool is_whole = shape == TileShape::kWholeRows;
  const std::uint64_t elements =
      (is_whole ? kWholeRowsTileBytes : kTileBytes) / std::max(unit_, out_unit_);
  std::optional<double> best;
  const auto consider = [&](std::uint64_t rows) {
    rows = std::clamp<std::uint64_t>(rows, 1, rows_.size);
    const std::uint64_t columns =
        elements / rows >= columns_.size
            ? columns_.size
            : whole_multiple(elements / rows, std::max<std::uint64_t>(kPageBytes / out_unit_, 1));
    const double found = cost(rows, columns);
    if (!best || found < *best) {
      best = found;
      tile_rows_ = rows;
      tile_columns_ = columns;
    }
  };
  // Whole rows: as many as fit, but equally many in each tile, because a tile of few is slow.
  const std::uint64_t fit = std::max<std::uint64_t>(1, elements / columns_.size);
  const std::uint64_t tiles = (rows_.size + fit - 1) / fit;
  consider(
      std::min(fit, whole_multiple((rows_.size + tiles - 1) / tiles + kLeastRows - 1, kLeastRows)));
  if (is_whole) {
    return;
  }
  consider(std::min(rows_.size, elements));
  for (std::uint64_t rows = kLeastRows; rows < std::min(rows_.size, elements); rows *= 2) {
    consider(rows);
  }
}

std::uint64_t TiledView::chunk_bytes(std::uint64_t least) const {
  const std::uint64_t band = tile_rows_ * columns_.size * out_unit_;
  return (least + band - 1) / band * band;
}

std::uint64_t TiledView::element_of_matrix(std::uint64_t number) const {
  std::uint64_t element = 0;
  for (std::size_t d = matrices_.size(); d-- > 0; number /= matrices_[d].size) {
    element += number % matrices_[d].size * matrices_[d].stride;
  }
  return element;
}

// Some rows of one matrix.
class TiledView::Band {
 public:
  Band(const TiledView& all, std::uint64_t first_row, std::uint64_t rows, IoBuffer& tile,
       const TakeRun& take, bool wants_crc)
      : all_(all),
        first_row_(first_row),
        rows_(rows),
        row_bytes_(all.columns_.size * all.out_unit_),
        tile_(tile.first(kScratchBytes + kTileRoom)),
        take_(take),
        wants_crc_(wants_crc),
        is_run_(all.tile_columns_ == all.columns_.size),
        crcs_(is_run_ ? 1 : rows) {}

  Status read() {
    for (std::uint64_t column = 0; column < all_.columns_.size; column += all_.tile_columns_) {
      const std::uint64_t columns = std::min(all_.tile_columns_, all_.columns_.size - column);
      TRY(read_tile(column, columns));
    }
    return {};
  }

  // Returns the CRC-32 of the bytes that were read.
  [[nodiscard]] std::uint32_t crc() const {
    if (is_run_) {
      return crcs_[0].value();
    }
    const Crc32Appender append(row_bytes_);
    std::uint32_t crc = 0;
    for (const Crc32& row : crcs_) {
      crc = append(crc, row.value());
    }
    return crc;
  }

 private:
  Status read_tile(std::uint64_t column, std::uint64_t columns) {
    const std::uint64_t in_matrix = first_row_ % all_.rows_.size;
    TensorView view = all_.view_;
    view.shape = {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(columns)};
    view.strides = {1, static_cast<std::int64_t>(all_.columns_.stride)};
    view.storage_offset += (all_.element_of_matrix(first_row_ / all_.rows_.size) + in_matrix +
                            column * all_.columns_.stride) *
                           all_.unit_;
    const std::uint64_t line_bytes = columns * all_.unit_;
    const std::uint64_t pitch = is_run_ ? line_bytes : spread_rows(line_bytes);
    const std::span<std::byte> bytes = tile_.subspan(kScratchBytes, rows_ * pitch);
    TRY(all_.word_rows_
            ? CheckpointAccess::read_word_rows(all_.checkpoint_, view, *all_.word_rows_, bytes,
                                               tile_.data())
            : CheckpointAccess::read_rows(all_.checkpoint_, view, pitch, bytes, tile_.data()));
    const std::uint64_t run_bytes = is_run_ ? bytes.size() : line_bytes;
    for (std::size_t row = 0; row < crcs_.size(); ++row) {
      const std::uint64_t at = (first_row_ + row) * row_bytes_ + column * all_.out_unit_;
      const auto run = bytes.subspan(row * pitch, run_bytes);
      TRY(all_.cast_to_ ? give_converted(row, at, run) : give(row, at, run));
    }
    return {};
  }

  Status give(std::size_t row, std::uint64_t at, std::span<std::byte> run) {
    if (wants_crc_) {
      crcs_[row].update(run);
    }
    return take_(at, run);
  }

  Status give_converted(std::size_t row, std::uint64_t at, std::span<const std::byte> run) {
    const std::size_t step =
        static_cast<std::size_t>(kCastBytes / std::max(all_.unit_, all_.out_unit_) * all_.unit_);
    for (; !run.empty(); run = run.subspan(std::min(step, run.size()))) {
      const auto from = run.first(std::min(step, run.size()));
      const auto to = converted_.first(from.size() / all_.unit_ * all_.out_unit_);
      cast_elements(all_.view_.dtype, *all_.cast_to_, from, to);
      TRY(give(row, at, to));
      at += to.size();
    }
    return {};
  }

  const TiledView& all_;
  std::uint64_t first_row_;  // counted through all matrices
  std::uint64_t rows_;
  std::uint64_t row_bytes_;
  std::span<std::byte> tile_;  // the scratch for gathering it, then the tile
  const TakeRun& take_;
  IoBuffer converted_;
  bool wants_crc_;
  bool is_run_;              // the rows are also contiguous in a tile
  std::vector<Crc32> crcs_;  // of each row, or of all
};

Status TiledView::read(std::uint64_t first, std::uint64_t length, IoBuffer& tile,
                       const TakeRun& take, std::uint32_t* crc) const {
  const std::uint64_t row_bytes = columns_.size * out_unit_;
  const std::uint64_t end = (first + length) / row_bytes;
  std::uint32_t found = 0;
  for (std::uint64_t row = first / row_bytes; row < end;) {
    const std::uint64_t rows = std::min({tile_rows_, rows_.size - row % rows_.size, end - row});
    Band band(*this, row, rows, tile, take, crc != nullptr);
    TRY(band.read());
    found = crc == nullptr ? 0 : crc32_concat(found, band.crc(), rows * row_bytes);
    row += rows;
  }
  if (crc != nullptr) {
    *crc = found;
  }
  return {};
}

}  // namespace onnx_external
