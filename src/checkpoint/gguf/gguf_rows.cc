#include "checkpoint/gguf/gguf_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/io_buffer.h"
#include "base/try.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kSpanBytes = std::uint64_t{512} << 10;  // read of one place at a time

// Rows of one place, from the first to the last.
struct RowSpan {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;

  [[nodiscard]] bool empty() const { return first > last; }
};

void reverse_each(std::span<std::byte> bytes, std::size_t unit) {
  for (std::size_t at = 0; at + unit <= bytes.size(); at += unit) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + unit));
  }
}

// Fills `out` with the bytes of a weight from `offset` on.
class NumberReader {
 public:
  NumberReader(const GgufRows& rows, std::uint64_t offset, std::span<std::byte> out)
      : rows_(rows),
        offset_(offset),
        out_(out),
        unit_(byte_size(rows.dtype)),
        made_unit_(byte_size(rows.made_type())),
        buffers_(rows.from.size()),
        read_(rows.from.size()) {}

  Status read() {
    const std::uint64_t columns = rows_.columns;
    const std::uint64_t most = std::max<std::uint64_t>(kSpanBytes / unit_, 1);
    const std::uint64_t end = (offset_ + out_.size() + made_unit_ - 1) / made_unit_;
    for (std::uint64_t at = offset_ / made_unit_; at < end;) {
      const std::uint64_t column = at % columns;
      const std::uint64_t count = std::min({columns - column, end - at, most});
      if (column == 0 && count == columns) {
        TRY_ASSIGN(const auto rows, read_rows(at / columns, (end - at) / columns));
        at += rows * columns;
      } else {
        TRY(read_part(at / columns, column, count));
        at += count;
      }
    }
    return {};
  }

 private:
  [[nodiscard]] std::vector<RowSpan> spans_of(std::uint64_t first, std::uint64_t count) const {
    std::vector<RowSpan> spans(rows_.from.size());
    for (std::uint64_t row = first; row < first + count; ++row) {
      RowSpan& span = spans[rows_.place_of(row)];
      const std::uint64_t stored = rows_.stored_row(row);
      span.first = std::min(span.first, stored);
      span.last = std::max(span.last, stored);
    }
    return spans;
  }

  [[nodiscard]] bool fit(const std::vector<RowSpan>& spans) const {
    return std::all_of(spans.begin(), spans.end(), [&](const RowSpan& span) {
      return span.empty() || span.last - span.first < kSpanBytes / rows_.row_bytes();
    });
  }

  // Reads whole rows that are neighbours in the file together. Returns how many were read.
  Result<std::uint64_t> read_rows(std::uint64_t row, std::uint64_t most) {
    const std::uint64_t row_bytes = rows_.row_bytes();
    std::uint64_t count = std::min(most, std::max<std::uint64_t>(kSpanBytes / row_bytes, 1));
    auto spans = spans_of(row, count);
    while (count > 1 && !fit(spans)) {
      count /= 2;
      spans = spans_of(row, count);
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (!spans[i].empty()) {
        read_[i] = buffers_[i].first((spans[i].last - spans[i].first + 1) * row_bytes);
        TRY(rows_.from[i].file->read(rows_.from[i].offset + spans[i].first * row_bytes, read_[i]));
      }
    }
    for (std::uint64_t each = row; each < row + count; ++each) {
      const std::size_t i = rows_.place_of(each);
      const std::uint64_t skipped = (rows_.stored_row(each) - spans[i].first) * row_bytes;
      put(each * rows_.columns, i,
          read_[i].subspan(static_cast<std::size_t>(skipped), static_cast<std::size_t>(row_bytes)));
    }
    return count;
  }

  Status read_part(std::uint64_t row, std::uint64_t column, std::uint64_t count) {
    const std::size_t i = rows_.place_of(row);
    const GgufPlace& place = rows_.from[i];
    const auto bytes = buffers_[i].first(count * unit_);
    TRY(place.file->read(place.offset + rows_.stored_row(row) * rows_.row_bytes() + column * unit_,
                         bytes));
    put(row * rows_.columns + column, i, bytes);
    return {};
  }

  // `bytes`: stored numbers, the first of which is element `at` of the weight.
  void put(std::uint64_t at, std::size_t place, std::span<std::byte> bytes) {
    if (rows_.from[place].order == ByteOrder::kBig) {
      reverse_each(bytes, unit_);
    }
    if (rows_.minus_one) {
      floats_.resize(bytes.size() / unit_);
      const auto made = std::as_writable_bytes(std::span(floats_));
      if (rows_.dtype == DType::kFloat32) {
        std::memcpy(made.data(), bytes.data(), bytes.size());
      } else {
        cast_elements(rows_.dtype, DType::kFloat32, bytes, made);
      }
      for (float& value : floats_) {
        value -= 1.0F;
      }
      bytes = made;
    }
    // The ends of `out_` may cut numbers.
    const std::uint64_t begin = at * made_unit_;
    const std::uint64_t from = std::max(begin, offset_);
    const std::uint64_t to = std::min<std::uint64_t>(begin + bytes.size(), offset_ + out_.size());
    std::memcpy(out_.data() + (from - offset_), bytes.data() + (from - begin),
                static_cast<std::size_t>(to - from));
  }

  const GgufRows& rows_;
  std::uint64_t offset_;
  std::span<std::byte> out_;
  std::uint64_t unit_;       // bytes of a stored number
  std::uint64_t made_unit_;  // of one of the weight
  std::vector<IoBuffer> buffers_;
  std::vector<std::span<std::byte>> read_;
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

ReadSource gguf_numbers(GgufRows rows) {
  return [rows = std::make_shared<const GgufRows>(std::move(rows))](
             std::uint64_t offset, std::span<std::byte> out) -> Status {
    return out.empty() ? Status() : NumberReader(*rows, offset, out).read();
  };
}

}  // namespace onnx_external
