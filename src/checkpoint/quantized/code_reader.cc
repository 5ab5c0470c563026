#include "checkpoint/quantized/code_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kByteBits = 8;
// Allows a code to be loaded together with the bytes after it.
constexpr std::size_t kLoadedBehind = 8;

template <typename Word>
std::uint64_t load_as(const std::byte* from) {
  Word word{};
  std::memcpy(&word, from, sizeof(word));
  return word;
}

std::uint64_t load_word(const std::byte* from, std::uint32_t bytes) {
  switch (bytes) {
    case 1:
      return load_as<std::uint8_t>(from);
    case 2:
      return load_as<std::uint16_t>(from);
    case 4:
      return load_as<std::uint32_t>(from);
    default:
      return load_as<std::uint64_t>(from);
  }
}

// Codes of whole rows or of parts of rows of `codes`.
class CodeUnpacker {
 public:
  // `packing` is that of `codes`, or of one of its planes.
  CodeUnpacker(const PackedCodes& codes, const CodePacking& packing)
      : codes_(codes),
        packing_(packing),
        mask_((std::uint32_t{1} << packing.bits) - 1),
        word_bits_(packing_.word_bytes * kByteBits) {}

  // The block is one of codes_, not of the weight.
  Status read(const MatrixBlock& block, std::uint8_t* out) {
    if (packing_.axis == CodeAxis::kColumns) {
      return along_columns(block, out);
    }
    if (packing_.parts == 0) {
      return along_rows(block, out);
    }
    MatrixBlock in_part = block;
    for (const std::uint64_t end = block.row + block.rows; in_part.row < end;) {
      const std::uint64_t place = in_part.row % packing_.part;
      in_part.rows = std::min(end - in_part.row, packing_.part - place);
      TRY(of_one_part(in_part, place, out));
      out += in_part.rows * in_part.columns;
      in_part.row += in_part.rows;
    }
    return {};
  }

 private:
  // Reads bytes [first, first + bytes) of `lines` lines, one after another, into `buffer_`.
  Status read_lines(std::uint64_t line, std::uint64_t lines, std::uint64_t first,
                    std::uint64_t bytes) {
    buffer_.resize(static_cast<std::size_t>(lines * bytes) + kLoadedBehind);
    const std::span<std::byte> all(buffer_);
    if (bytes == codes_.line_bytes) {
      return codes_.stored.read(line * bytes, all.first(static_cast<std::size_t>(lines * bytes)));
    }
    for (std::uint64_t i = 0; i < lines; ++i) {
      TRY(codes_.stored.read(
          (line + i) * codes_.line_bytes + first,
          all.subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes))));
    }
    return {};
  }

  [[nodiscard]] std::uint64_t bit_of(std::uint64_t code) const {
    const std::uint64_t cycle = packing_.shifts.size();
    return code / cycle * packing_.cycle_bits +
           packing_.shifts[static_cast<std::size_t>(code % cycle)];
  }

  Status along_columns(const MatrixBlock& block, std::uint8_t* out) {
    const std::uint64_t cycle = packing_.shifts.size();
    const std::uint64_t first_bit = block.column / cycle * packing_.cycle_bits;
    const std::uint64_t last = (block.column + block.columns - 1) / cycle + 1;
    const std::uint64_t first = first_bit / kByteBits;
    const std::uint64_t end =
        std::min((last * packing_.cycle_bits + kByteBits - 1) / kByteBits, codes_.line_bytes);
    const bool is_whole = block.columns == codes_.columns;
    const std::uint64_t start = is_whole ? 0 : first;
    const std::uint64_t bytes = is_whole ? codes_.line_bytes : end - first;
    TRY(read_lines(block.row, block.rows, start, bytes));
    for (std::uint64_t row = 0; row < block.rows; ++row) {
      unpack_line(buffer_.data() + row * bytes, start * kByteBits, block,
                  out + row * block.columns);
    }
    return {};
  }

  // `line` begins at bit `start` of the whole line.
  void unpack_line(const std::byte* line, std::uint64_t start, const MatrixBlock& block,
                   std::uint8_t* out) const {
    const std::uint8_t flip = packing_.flip;
    if (packing_.bits == kByteBits && packing_.is_dense()) {
      const auto* const from =
          reinterpret_cast<const std::uint8_t*>(line) + block.column - start / kByteBits;
      for (std::uint64_t k = 0; k < block.columns; ++k) {
        out[k] = from[k] ^ flip;
      }
      return;
    }
    if (packing_.is_dense()) {
      std::uint64_t bit = block.column * packing_.bits - start;
      for (std::uint64_t k = 0; k < block.columns; ++k, bit += packing_.bits) {
        out[k] = code_at(line, bit) ^ flip;
      }
      return;
    }
    for (std::uint64_t k = 0; k < block.columns; ++k) {
      out[k] = code_at(line, bit_of(block.column + k) - start) ^ flip;
    }
  }

  [[nodiscard]] std::uint8_t code_at(const std::byte* line, std::uint64_t bit) const {
    const std::uint64_t word = load_word(line + bit / kByteBits, sizeof(std::uint16_t));
    return static_cast<std::uint8_t>(word >> (bit % kByteBits) & mask_);
  }

  Status along_rows(const MatrixBlock& block, std::uint8_t* out) {
    const std::uint64_t cycle = packing_.shifts.size();
    const std::uint64_t first = block.row / cycle * packing_.cycle_bits / word_bits_;
    const std::uint64_t cycles = (block.row + block.rows - 1) / cycle + 1;
    const std::uint64_t all = (codes_.rows + cycle - 1) / cycle;
    const std::uint64_t end =
        (std::min(cycles, all) * packing_.cycle_bits + word_bits_ - 1) / word_bits_;
    const std::uint64_t bytes = block.columns * packing_.word_bytes;
    TRY(read_lines(first, end - first, block.column * packing_.word_bytes, bytes));
    for (std::uint64_t row = 0; row < block.rows; ++row) {
      const std::uint64_t bit = bit_of(block.row + row) - first * word_bits_;
      const std::byte* const line = buffer_.data() + bit / word_bits_ * bytes;
      unpack_words(line, bit % word_bits_, bytes, block.columns, out + row * block.columns);
    }
    return {};
  }

  Status of_one_part(const MatrixBlock& block, std::uint64_t place, std::uint8_t* out) {
    const std::uint64_t bytes = block.columns * packing_.word_bytes;
    TRY(read_lines(place, block.rows, block.column * packing_.word_bytes, bytes));
    const std::uint32_t shift =
        packing_.shifts[static_cast<std::size_t>(block.row / packing_.part)];
    for (std::uint64_t row = 0; row < block.rows; ++row) {
      unpack_words(buffer_.data() + row * bytes, shift, bytes, block.columns,
                   out + row * block.columns);
    }
    return {};
  }

  // A code may have its upper bits in the next line.
  void unpack_words(const std::byte* line, std::uint64_t shift, std::uint64_t bytes,
                    std::uint64_t columns, std::uint8_t* out) const {
    const bool crosses = shift + packing_.bits > word_bits_;
    const std::uint32_t word_bytes = packing_.word_bytes;
    if (!crosses && word_bytes == sizeof(std::uint32_t)) {
      for (std::uint64_t k = 0; k < columns; ++k) {
        const auto word =
            static_cast<std::uint32_t>(load_as<std::uint32_t>(line + k * sizeof(std::uint32_t)));
        out[k] = static_cast<std::uint8_t>((word >> shift & mask_) ^ packing_.flip);
      }
      return;
    }
    for (std::uint64_t k = 0; k < columns; ++k) {
      const std::byte* const word = line + k * word_bytes;
      std::uint64_t value = load_word(word, word_bytes) >> shift;
      if (crosses) {
        value |= load_word(word + bytes, word_bytes) << (word_bits_ - shift);
      }
      out[k] = static_cast<std::uint8_t>((value & mask_) ^ packing_.flip);
    }
  }

  const PackedCodes& codes_;
  const CodePacking& packing_;
  std::uint32_t mask_;
  std::uint64_t word_bits_;
  std::vector<std::byte> buffer_;
};

// Codes [first, first + count) in row-major order, in blocks of whole rows where that is possible.
Status read_run(CodeUnpacker& unpacker, std::uint64_t columns, std::uint64_t first,
                std::uint64_t count, std::uint8_t* out) {
  for (const std::uint64_t end = first + count; first < end;) {
    const std::uint64_t column = first % columns;
    MatrixBlock block{first / columns, 1, column, std::min(columns - column, end - first)};
    if (column == 0 && end - first >= columns) {
      block.rows = (end - first) / columns;
    }
    TRY(unpacker.read(block, out));
    out += block.rows * block.columns;
    first += block.rows * block.columns;
  }
  return {};
}

Status read_packed(const PackedCodes& codes, const CodePacking& packing, std::uint64_t columns,
                   const MatrixBlock& block, std::uint8_t* out) {
  CodeUnpacker unpacker(codes, packing);
  if (columns == codes.columns) {
    return unpacker.read(block, out);
  }
  if (block.columns == columns) {
    return read_run(unpacker, codes.columns, block.row * columns, block.rows * columns, out);
  }
  for (std::uint64_t row = 0; row < block.rows; ++row) {
    TRY(read_run(unpacker, codes.columns, (block.row + row) * columns + block.column, block.columns,
                 out + row * block.columns));
  }
  return {};
}

// The codes of a plane, whose first bit in a cycle is `first`.
CodePacking plane_of(const CodePacking& packing, std::uint32_t bits, std::uint32_t first) {
  CodePacking plane = packing;
  plane.bits = bits;
  for (std::uint32_t& shift : plane.shifts) {
    shift = first;
    first += bits;
  }
  return plane;
}

}  // namespace

Status read_codes(const PackedCodes& codes, std::uint64_t columns, const MatrixBlock& block,
                  std::span<std::uint8_t> out) {
  const CodePacking& packing = codes.packing;
  if (packing.planes.empty()) {
    return read_packed(codes, packing, columns, block, out.data());
  }
  const auto count = static_cast<std::size_t>(block.rows * block.columns);
  std::fill_n(out.begin(), count, std::uint8_t{0});
  std::vector<std::uint8_t> part(count);
  std::uint32_t below = 0;
  for (const std::uint32_t bits : packing.planes) {
    const auto first = static_cast<std::uint32_t>(below * packing.shifts.size());
    TRY(read_packed(codes, plane_of(packing, bits, first), columns, block, part.data()));
    for (std::size_t i = 0; i < count; ++i) {
      out[i] |= static_cast<std::uint8_t>(part[i] << below);
    }
    below += bits;
  }
  return {};
}

}  // namespace onnx_external
