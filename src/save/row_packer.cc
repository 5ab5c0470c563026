#include "save/row_packer.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "save/kept_rows.h"
#include "tensor/quantize/packed_layout.h"

namespace onnx_external {
namespace {

// Returns the number of rows that are quantized at once.
std::uint64_t step_rows(std::uint64_t row_bytes) {
  return std::max<std::uint64_t>(1, kRowsAtOnceBytes / std::max<std::uint64_t>(1, row_bytes));
}

// Returns the bytes per row in each part.
std::array<std::uint64_t, kMatrixParts> row_bytes_of(const PackedTensor& packed) {
  const auto layout = packed_layout(packed.scheme, 1, static_cast<std::int64_t>(packed.columns));
  return layout ? std::array{layout->codes.row_bytes, layout->scales.row_bytes,
                             layout->zero_points.row_bytes}
                : std::array<std::uint64_t, kMatrixParts>{};
}

// The rows of the checkpoint's codes.
Result<KeptRows> kept_rows(const Checkpoint& checkpoint, const TensorView& view,
                           const PackedTensor& packed) {
  TRY_ASSIGN(auto rows,
             KeptRows::of(checkpoint, view, packed.columns, packed.scheme.scales, &packed.scheme));
  if (!rows || rows->scheme() != packed.scheme) {
    return fail(ErrorCode::kMismatch, "the checkpoint has no codes with the scheme " +
                                          scheme_text(packed.scheme) + " for it");
  }
  return *std::move(rows);
}

}  // namespace

RowPacker::RowPacker(const Checkpoint& checkpoint, const TensorView& view,
                     std::optional<DType> cast_to, const PackedTensor& packed)
    : checkpoint_(checkpoint),
      view_(view),
      cast_to_(cast_to),
      dtype_(cast_to.value_or(view.dtype)),
      packed_(packed),
      source_row_bytes_(packed.columns * byte_size(dtype_)),
      part_row_bytes_(row_bytes_of(packed)),
      tiles_(packed.scheme.kept ? std::nullopt
                                : TiledView::of(checkpoint, view, cast_to, TileShape::kWholeRows)) {
}

std::uint64_t RowPacker::chunk_rows(std::uint64_t bytes) const {
  if (packed_.scheme.kept) {
    const auto rows = kept_rows(checkpoint_, view_, packed_);
    const std::uint64_t row_bytes = row_bytes_of(packed_)[0];
    return rows ? rows->chunk_rows(std::max<std::uint64_t>(1, bytes / row_bytes)) : 1;
  }
  const std::uint64_t least = std::max(bytes, source_row_bytes_);
  return tiles_ ? tiles_->chunk_bytes(least) / source_row_bytes_ : least / source_row_bytes_;
}

// Collects bytes that come in order, and quantizes them when there are enough rows.
class RowPacker::Collector {
 public:
  Collector(const RowPacker& all, std::uint64_t first, std::uint64_t count, PackingBuffers& buffers,
            const Take& take, QuantizationError* error)
      : all_(all),
        row_(first),
        end_(first + count),
        buffers_(buffers),
        take_(take),
        error_(error),
        rows_(buffers.rows.first(step_rows(all.source_row_bytes_) * all.source_row_bytes_)) {}

  // Returns the memory for the next bytes, at most `most` of them; take_in() must follow.
  std::span<std::byte> room(std::uint64_t most) {
    const std::uint64_t left = (end_ - row_) * all_.source_row_bytes_;
    const std::uint64_t size = std::min<std::uint64_t>(rows_.size(), left);
    return rows_.subspan(filled_, std::min<std::uint64_t>(size - filled_, most));
  }

  // Says that `bytes` bytes of the room are filled.
  Status take_in(std::size_t bytes) {
    filled_ += bytes;
    return room(1).empty() ? quantize() : Status();
  }

  Status add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto to = room(bytes.size());
      std::memcpy(to.data(), bytes.data(), to.size());
      bytes = bytes.subspan(to.size());
      TRY(take_in(to.size()));
    }
    return {};
  }

  [[nodiscard]] bool is_done() const { return row_ == end_; }
  [[nodiscard]] std::uint64_t next_byte() const { return row_ * all_.source_row_bytes_ + filled_; }

 private:
  Status quantize() {
    const std::uint64_t rows = filled_ / all_.source_row_bytes_;
    std::array<std::span<std::byte>, kMatrixParts> out;
    PackedBytes made;
    for (std::size_t part = 0; part < kMatrixParts; ++part) {
      out[part] = buffers_.parts[part].first(rows * all_.part_row_bytes_[part]);
      made.parts[part] = out[part];
    }
    TRY(quantize_rows(
        all_.packed_.scheme,
        {all_.dtype_, all_.packed_.columns, rows_.first(filled_), all_.view_.name, row_},
        {out[0], out[1], out[2]}, error_));
    const std::uint64_t first = row_;
    row_ += rows;
    filled_ = 0;
    return take_(first, made);
  }

  const RowPacker& all_;
  std::uint64_t row_;
  std::uint64_t end_;
  PackingBuffers& buffers_;
  const Take& take_;
  QuantizationError* error_;
  std::span<std::byte> rows_;
  std::size_t filled_ = 0;
};

Status RowPacker::keep(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                       PackingBuffers& buffers, const Take& take) const {
  TRY_ASSIGN_IN(quote(view_.name), const KeptRows rows, kept_rows(checkpoint_, view_, packed_));
  const auto codes = packed_.part == MatrixPart::kCodes ? KeptCodes::kMade : KeptCodes::kLeftOut;
  return rows.make(first, count, codes, tile, buffers.kept,
                   [&](std::uint64_t row, const PackedRows& made) {
                     return take(row, {{made.codes, made.scales, made.zero_points}});
                   });
}

Status RowPacker::make(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                       PackingBuffers& buffers, const Take& take, QuantizationError* error) const {
  if (packed_.scheme.kept) {
    return keep(first, count, tile, buffers, take);
  }
  Collector collector(*this, first, count, buffers, take, error);
  if (tiles_) {
    return tiles_->read(
        first * source_row_bytes_, count * source_row_bytes_, tile,
        [&](std::uint64_t, std::span<const std::byte> run) { return collector.add(run); });
  }
  while (!collector.is_done()) {
    const std::uint64_t at = collector.next_byte();
    const auto room = collector.room(kRowsAtOnceBytes + source_row_bytes_);
    TRY(cast_to_ ? checkpoint_.read_as(view_, *cast_to_, at, room)
                 : checkpoint_.read(view_, at, room));
    TRY(collector.take_in(room.size()));
  }
  return {};
}

std::optional<FileRange> stored_codes_range(const Checkpoint& checkpoint, const TensorView& view,
                                            const PackedTensor& packed) {
  if (!packed.scheme.kept || packed.part != MatrixPart::kCodes) {
    return std::nullopt;
  }
  const auto rows = kept_rows(checkpoint, view, packed);
  return rows ? rows->stored_codes_range(checkpoint) : std::nullopt;
}

Status read_packed(const Checkpoint& checkpoint, const TensorView& view,
                   std::optional<DType> cast_to, const PackedTensor& packed, std::uint64_t first,
                   std::span<std::byte> out) {
  const RowPacker rows(checkpoint, view, cast_to, packed);
  const std::uint64_t row_bytes = rows.row_bytes(packed.part);
  if (out.empty()) {
    return {};
  }
  const std::uint64_t end = first + out.size();
  const std::uint64_t step = rows.needs_tile() ? rows.chunk_rows(1) : 1;
  const std::uint64_t first_row = first / row_bytes / step * step;
  const std::uint64_t end_row =
      std::min(packed.rows, ((end + row_bytes - 1) / row_bytes + step - 1) / step * step);
  IoBuffer tile;
  PackingBuffers buffers;
  return rows.make(first_row, end_row - first_row, tile, buffers,
                   [&](std::uint64_t row, const PackedBytes& made) -> Status {
                     const auto part = made.parts[static_cast<std::size_t>(packed.part)];
                     const std::uint64_t at = row * row_bytes;
                     const std::uint64_t from = std::max(first, at);
                     const std::uint64_t to = std::min(end, at + part.size());
                     if (from < to) {
                       std::memcpy(out.data() + (from - first), part.data() + (from - at),
                                   to - from);
                     }
                     return {};
                   });
}

}  // namespace onnx_external
