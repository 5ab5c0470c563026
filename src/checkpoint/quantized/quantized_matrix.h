// A weight as a quantization library stored it: the stored tensors that hold its codes, scales and
// zero points, their packing, and the formula that computes the weight from them.
//
//   w[n, k] = ((value(q[n, k]) - z[n, g]) * s[n, g] + b[n, g]) * c[k],   g = the group of column k
//
// z, b and c may be absent. All operations are those of float64, rounded once to float32, unless
// the weight has blocks, which round as their format does. A checkpoint lists such a weight as a
// float32 tensor under the name that it has in transformers; CheckpointAccess::quantized() returns
// its parts. matrix_rows.h reads the parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// XORed to the codes of int8, it makes them unsigned, with zero points that are as much larger.
inline constexpr std::uint8_t kSignBit = 0x80;

// A stored tensor, or a view of one. Its storage is one of the checkpoint's, so that
// Checkpoint::plain_range(view) says where in a file the bytes are, if they are one range.
struct StoredTensor {
  TensorView view;
  ReadSource read;  // bytes of the contiguous, little-endian, row-major tensor
};

// The axis along which codes share the words of a stored tensor.
enum class CodeAxis : std::uint8_t { kColumns, kRows };

// The arrangement of codes in words. Along the axis, code i of a line begins at bit
//
//   (i / cycle) * cycle_bits + shifts[i % cycle]        (`parts` is 0), or
//   (i % part) * cycle_bits + shifts[i / part]          (`parts` > 1; part = words of a line)
//
// of the line's words, which are little-endian and follow each other: the lowest bit is bit 0. The
// default is a byte for a code.
struct CodePacking {
  std::uint32_t bits = 8;        // of a code, 1 to 8
  std::uint32_t word_bytes = 1;  // 1, 2, 4 or 8
  CodeAxis axis = CodeAxis::kColumns;
  std::uint32_t cycle_bits = 8;
  std::vector<std::uint32_t> shifts = {0};
  std::uint64_t parts = 0;  // the codes of a word belong to this many parts of the axis
  std::uint64_t part = 0;   // the number of codes in each
  std::uint8_t flip = 0;    // XORed to each code: makes signed integers unsigned

  // Without gaps, the first code in the lowest bits.
  [[nodiscard]] bool is_dense() const {
    return parts == 0 && shifts.size() == 1 && shifts[0] == 0 && cycle_bits == bits;
  }
};

// A matrix of codes, whose row-major order is that of the weight. `stored` has the words in
// row-major order: with kColumns those of each row after another; with kRows a line has one word
// for each column, which holds codes of several rows.
struct PackedCodes {
  StoredTensor stored;
  CodePacking packing;
  std::uint64_t rows = 0;  // of codes
  std::uint64_t columns = 0;
  std::uint64_t line_bytes = 0;  // of `stored` in a line
};

// The position of the scale, zero point or minimum for group g of row n.
enum class GroupPlace : std::uint8_t {
  kTable,  // [matrices, rows, columns]: row (n % N) / row_block, column g (0 if there is one)
  kFlat,   // number (n * K + first column of g) / block
  kCycle,  // number (n * K + first column of g) % block
};

// Scales of scales, as bitsandbytes has them, in float32: map[code] * absmax[i / block] + offset.
struct NestedNumbers {
  std::vector<float> map;  // 256
  StoredTensor absmax;     // float32
  std::uint64_t count = 0;
  std::uint64_t block = 0;
  float offset = 0;
};

// Numbers for the groups of a matrix: scales, fractional zero points or minima.
struct GroupNumbers {
  StoredTensor stored;     // row-major; any float type, or 8, 16 or 32 bits of integers
  bool exponents = false;  // uint8 e stands for 2^(e - 127)
  std::uint64_t count = 0;
  GroupPlace place = GroupPlace::kTable;
  std::uint64_t rows = 1;  // of a matrix
  std::uint64_t columns = 1;
  std::uint64_t row_block = 1;
  std::uint64_t block = 0;
  std::optional<NestedNumbers> nested;

  // The inverse of each number counts with `inverse`. It is divided by `divisor`, then multiplied
  // by the second-level number of its matrix, or divided by it.
  bool inverse = false;
  double divisor = 1;
  std::optional<StoredTensor> second;  // one number, or one for each matrix
  std::uint64_t second_count = 0;
  bool second_divides = false;
};

enum class CodeKind : std::uint8_t {
  kInteger,     // unsigned; value(q) = q
  kFloat4E2M1,  // the values of `table`, which are those of E2M1
  kFloat8,      // a byte is a float of `float8`; `table` has its 256 values
  kTable,       // value(q) = table[q], such as NF4
};

struct MatrixBlock;  // matrix_rows.h
struct BlockParts;
struct KeptParts;

// Reads a weight whose codes, scales and minima lie together in blocks, as in GGUF files.
// Immutable; any number of threads may read.
class BlockReader {
 public:
  BlockReader() = default;
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  virtual ~BlockReader() = default;

  [[nodiscard]] virtual bool has_minima() const = 0;
  // Do the same as the functions of MatrixRows. Errors of reading.
  [[nodiscard]] virtual Status read(const MatrixBlock& block, BlockParts& parts) const = 0;
  [[nodiscard]] virtual Status read_floats(const MatrixBlock& block,
                                           std::span<float> out) const = 0;
  // Writes whole rows as MatMulNBits takes them, in blocks that are the groups.
  [[nodiscard]] virtual Status read_kept(std::uint64_t row, std::uint64_t rows,
                                         const KeptParts& out) const = 0;
};

struct QuantizedMatrix {
  std::string method;  // "GPTQ", "AWQ", "compressed-tensors", ...
  std::string name;    // of the weight

  // The weight is `matrices` matrices of `rows` x `columns`, one after another. `codes` has as many
  // codes, in the same order.
  std::uint64_t matrices = 1;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  PackedCodes codes;
  CodeKind kind = CodeKind::kInteger;
  DType float8 = DType::kFloat8E4M3Fn;
  std::vector<float> table;

  // Columns [g * group, (g + 1) * group) of a row are group g; the last one may have fewer. With
  // `group_index` (int32 or int64 [columns]) it is element k instead, if the groups are not those.
  std::uint64_t group = 0;
  std::uint64_t groups = 0;
  std::optional<StoredTensor> group_index;

  GroupNumbers scales;

  // At most one of these; without them all zero points are `zero`.
  std::optional<PackedCodes> zero_codes;  // [rows of all matrices, groups]
  std::uint32_t zero_add = 0;             // added to each, modulo 2^bits
  std::optional<GroupNumbers> zeros;      // fractional
  double zero = 0;
  double zeros_offset = 0;  // added to the numbers of `zeros`

  std::optional<GroupNumbers> minima;          // b
  bool minima_negated = false;                 // what is stored is -b
  std::optional<StoredTensor> column_factors;  // c, [columns]

  // If not null, it reads all of the above but the sizes, `zero` and the bits of codes, which are
  // integers in the order of the columns.
  std::shared_ptr<const BlockReader> blocks;

  // The stored tensors that the weight takes the place of, and their storages.
  std::vector<TensorView> parts;

  [[nodiscard]] std::uint64_t all_rows() const { return matrices * rows; }  // checked
  [[nodiscard]] bool has_minima() const {
    return minima.has_value() || (blocks != nullptr && blocks->has_minima());
  }
};

// Checks every size and place in the matrix against the stored tensors, so that its reader reads
// inside them. The message of kCorrupt names those that do not fit. Every matrix of a checkpoint
// has passed it.
[[nodiscard]] Status check_matrix(const QuantizedMatrix& matrix);

// "GPTQ, 4 bits, groups of 128, with g_idx".
[[nodiscard]] std::string describe_matrix(const QuantizedMatrix& matrix);

// The values of E2M1, and those of an 8-bit float type.
[[nodiscard]] std::vector<float> float4_table();
[[nodiscard]] std::vector<float> float8_table(DType float8);

}  // namespace onnx_external
