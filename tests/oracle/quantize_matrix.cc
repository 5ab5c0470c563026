// Quantizes the matrix on the standard input, for quantize_test.py.
//
// usage: quantize_matrix SCHEME TYPE COLUMNS
// Writes codes, scales and zero points, then the dequantized matrix in float32.
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "tensor/quantize/dequantize_rows.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/quantize_rows.h"

namespace {

namespace oe = onnx_external;

std::vector<std::byte> read_all() {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::vector<std::byte> bytes;
  for (std::size_t got = kPiece; got == kPiece;) {
    const std::size_t size = bytes.size();
    bytes.resize(size + kPiece);
    got = std::fread(bytes.data() + size, 1, kPiece, stdin);
    bytes.resize(size + got);
  }
  return bytes;
}

void write(std::span<const std::byte> bytes) {
  (void)std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

int complain(const oe::Error& error) {
  std::fputs(oe::error_text(error).c_str(), stderr);
  return 1;
}

int quantize(const char* text, const char* type, std::uint64_t columns) {
  const auto scheme = oe::parse_scheme(text);
  if (!scheme) {
    return complain(scheme.error());
  }
  const oe::DType dtype = oe::dtype_from_torch_name(type).value();
  const std::vector<std::byte> values = read_all();
  const std::uint64_t rows = values.size() / oe::byte_size(dtype) / columns;
  const auto layout = oe::packed_layout(*scheme, static_cast<std::int64_t>(rows),
                                        static_cast<std::int64_t>(columns));
  if (!layout) {
    return complain(layout.error());
  }
  std::vector<std::byte> codes(layout->codes.bytes);
  std::vector<std::byte> scales(layout->scales.bytes);
  std::vector<std::byte> zero_points(layout->zero_points.bytes);
  const auto status = oe::quantize_rows(
      *scheme, {.dtype = dtype, .columns = columns, .values = values, .name = "matrix"},
      {codes, scales, zero_points});
  if (!status) {
    return complain(status.error());
  }
  std::vector<float> floats(rows * columns);
  oe::dequantize_rows(*scheme, columns, {codes, scales, zero_points}, floats);
  write(codes);
  write(scales);
  write(zero_points);
  write(std::as_bytes(std::span(floats)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: quantize_matrix SCHEME TYPE COLUMNS <VALUES >CODES_AND_FLOATS\n", stderr);
    return 2;
  }
  return quantize(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
}
