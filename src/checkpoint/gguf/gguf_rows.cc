#include "checkpoint/gguf/gguf_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/io_buffer.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// What is read of one place at a time, and the values that are computed at a time.
constexpr std::uint64_t kSpanBytes = std::uint64_t{512} << 10;
constexpr std::uint64_t kMostWindowValues = std::uint64_t{1} << 18;

// Rows of one place: its first and last.
struct RowSpan {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;

  [[nodiscard]] bool empty() const { return first > last; }
};

std::vector<RowSpan> spans_of(const GgufRows& rows, std::uint64_t first, std::uint64_t count) {
  std::vector<RowSpan> spans(rows.from.size());
  for (std::uint64_t row = first; row < first + count; ++row) {
    RowSpan& span = spans[rows.place_of(row)];
    const std::uint64_t stored = rows.stored_row(row);
    span.first = std::min(span.first, stored);
    span.last = std::max(span.last, stored);
  }
  return spans;
}

bool fit(const std::vector<RowSpan>& spans, std::uint64_t row_bytes) {
  return std::all_of(spans.begin(), spans.end(), [&](const RowSpan& span) {
    return span.empty() || (span.last - span.first + 1) <= kSpanBytes / row_bytes;
  });
}

void reverse_each(std::span<std::byte> bytes, std::size_t unit) {
  for (std::size_t at = 0; at + unit <= bytes.size(); at += unit) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + unit));
  }
}

// Fills `out` with the bytes of a weight from `offset` on.
class ValueReader {
 public:
  ValueReader(const GgufRows& rows, std::uint64_t offset, std::span<std::byte> out)
      : rows_(rows),
        offset_(offset),
        out_(out),
        unit_(rows.is_computed() ? sizeof(float) : rows.type->bytes) {}

  Status read() {
    const std::uint64_t columns = rows_.columns;
    const std::uint64_t end = (offset_ + out_.size() + unit_ - 1) / unit_;
    for (std::uint64_t at = offset_ / unit_; at < end;) {
      const std::uint64_t column = at % columns;
      GgufWindow window{at / columns, 1, column - column % rows_.type->values, 0};
      if (column == 0 && columns <= kMostWindowValues && end - at >= columns) {
        window.rows = (end - at) / columns;
        window.columns = columns;
      } else {
        const std::uint64_t wanted = column - window.column + std::min(end - at, columns - column);
        const std::uint64_t blocks = (wanted + rows_.type->values - 1) / rows_.type->values;
        window.columns = std::min(blocks * rows_.type->values, kMostWindowValues);
      }
      TRY(read_gguf_rows(rows_, window, [&](std::uint64_t row, std::span<const std::byte> bytes) {
        put(row, window.column, bytes);
        return Status();
      }));
      at = (window.row + window.rows - 1) * columns + window.column + window.columns;
    }
    return {};
  }

 private:
  void put(std::uint64_t row, std::uint64_t column, std::span<const std::byte> bytes) {
    const GgufPlace& place = rows_.from[rows_.place_of(row)];
    if (place.order == ByteOrder::kBig && rows_.type->bytes > 1) {
      swapped_.assign(bytes.begin(), bytes.end());
      reverse_each(swapped_, rows_.type->bytes);
      bytes = swapped_;
    }
    if (unit_ == sizeof(float) && rows_.is_computed()) {
      bytes = compute(place, rows_.stored_row(row), bytes);
    }
    const std::uint64_t begin = (row * rows_.columns + column) * unit_;
    const std::uint64_t from = std::max(begin, offset_);
    const std::uint64_t to = std::min<std::uint64_t>(begin + bytes.size(), offset_ + out_.size());
    if (from < to) {
      std::memcpy(out_.data() + (from - offset_), bytes.data() + (from - begin),
                  static_cast<std::size_t>(to - from));
    }
  }

  std::span<const std::byte> compute(const GgufPlace& place, std::uint64_t stored_row,
                                     std::span<const std::byte> bytes) {
    floats_.resize(bytes.size() / rows_.type->bytes * rows_.type->values);
    decode_row(*rows_.type, bytes, floats_);
    if (!place.factors.empty()) {
      const float factor = place.factors[static_cast<std::size_t>(stored_row / place.factor_rows)];
      for (float& value : floats_) {
        value *= factor;
      }
    }
    if (rows_.minus_one) {
      for (float& value : floats_) {
        value -= 1.0F;
      }
    }
    return std::as_bytes(std::span(floats_));
  }

  const GgufRows& rows_;
  std::uint64_t offset_;
  std::span<std::byte> out_;
  std::uint64_t unit_;  // bytes of a value
  std::vector<std::byte> swapped_;
  std::vector<float> floats_;
};

}  // namespace

std::uint64_t GgufRows::stored_row(std::uint64_t row) const {
  std::uint64_t at = row / from.size();
  if (heads != 0) {
    const std::uint64_t size = rows / heads;
    const std::uint64_t in_head = at % size;
    at = at - in_head + in_head % (size / 2) * 2 + in_head / (size / 2);
  }
  return first_row + at;
}

bool GgufRows::is_computed() const {
  return type->is_quantized() || minus_one ||
         std::any_of(from.begin(), from.end(),
                     [](const GgufPlace& place) { return !place.factors.empty(); });
}

bool GgufRows::is_plain() const {
  return !is_computed() && from.size() == 1 && heads == 0;
}

Status read_gguf_rows(const GgufRows& rows, const GgufWindow& window, const UseRow& use) {
  const std::uint64_t row_bytes = rows.row_bytes();
  const std::uint64_t skipped = window.column / rows.type->values * rows.type->bytes;
  const std::uint64_t taken = window.columns / rows.type->values * rows.type->bytes;
  const std::uint64_t most = std::max<std::uint64_t>(kSpanBytes / row_bytes, 1);
  std::vector<IoBuffer> buffers(rows.from.size());
  std::vector<std::span<std::byte>> read(rows.from.size());
  const std::uint64_t end = window.row + window.rows;
  for (std::uint64_t row = window.row; row < end;) {
    std::uint64_t count = std::min(most, end - row);
    auto spans = spans_of(rows, row, count);
    while (count > 1 && !fit(spans, row_bytes)) {
      count /= 2;
      spans = spans_of(rows, row, count);
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (!spans[i].empty()) {
        read[i] = buffers[i].first((spans[i].last - spans[i].first) * row_bytes + taken);
        TRY(rows.from[i].file->read(rows.from[i].offset + spans[i].first * row_bytes + skipped,
                                    read[i]));
      }
    }
    for (const std::uint64_t stop = row + count; row < stop; ++row) {
      const std::size_t i = rows.place_of(row);
      TRY(use(row, read[i].subspan(static_cast<std::size_t>(
                                       (rows.stored_row(row) - spans[i].first) * row_bytes),
                                   static_cast<std::size_t>(taken))));
    }
  }
  return {};
}

ReadSource gguf_values(GgufRows rows) {
  return [rows = std::make_shared<const GgufRows>(std::move(rows))](
             std::uint64_t offset, std::span<std::byte> out) -> Status {
    return out.empty() ? Status() : ValueReader(*rows, offset, out).read();
  };
}

}  // namespace onnx_external
