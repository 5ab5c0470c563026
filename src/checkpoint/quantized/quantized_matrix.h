// Describes a quantized weight in the form in which a quantization library stored it: the stored
// tensors with codes, scales and zero points, their packing, and the formula for the weight.
//
//   w[n, k] = ((value(q[n, k]) - z[n, g]) * s[n, g] + b[n, g]) * c[k],   g = the group of column k
//
// The terms z, b and c are optional. All operations are in float64, and the result is rounded once
// to float32. Weights that are stored in blocks are rounded as their format specifies. A checkpoint
// lists such a weight as a float32 tensor under the name that it has in transformers;
// CheckpointAccess::quantized() returns the description. matrix_rows.h reads the codes, scales and
// zero points.
#pragma once

#include <array>
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

// The bits at which AWQ stores the eight codes of a word. Quark uses this order, too.
inline constexpr std::array<std::uint32_t, 8> kAwqShifts = {0, 16, 4, 20, 8, 24, 12, 28};

// Int8 codes become unsigned by XOR with this value, which also increases their zero points by 128.
inline constexpr std::uint8_t kSignBit = 0x80;

// A stored tensor, or a view of one. Its storage belongs to the checkpoint, so
// Checkpoint::plain_range(view) returns the range of a file with its bytes, if they are a single
// range.
struct StoredTensor {
  TensorView view;
  ReadSource read;  // reads the contiguous, little-endian, row-major tensor
};

// The axis along which consecutive codes share a word of a stored tensor.
enum class CodeAxis : std::uint8_t { kColumns, kRows };

// The arrangement of codes in words. Code i of a line along the axis begins at bit
//
//   (i / cycle) * cycle_bits + shifts[i % cycle]        (`parts` is 0), or
//   (i % part) * cycle_bits + shifts[i / part]          (`parts` > 1; part = words of a line)
//
// of the line's words, which are little-endian and consecutive; bit 0 is the lowest. By default,
// each code is a byte. If the bits of codes are divided into planes, each cycle has the lowest bits
// of all its codes first, then the next bits of all of them, and so on, all without gaps.
struct CodePacking {
  std::uint32_t bits = 8;        // bits of a code, 1 to 8
  std::uint32_t word_bytes = 1;  // 1, 2, 4 or 8
  CodeAxis axis = CodeAxis::kColumns;
  std::uint32_t cycle_bits = 8;
  std::vector<std::uint32_t> shifts = {0};
  // The number of parts into which the axis is divided, if a word has one code of each part.
  std::uint64_t parts = 0;
  std::uint64_t part = 0;                  // the number of codes in each part
  std::vector<std::uint32_t> planes = {};  // bits in each plane, lowest first; empty: no planes
  std::uint8_t flip = 0;                   // XORed with each code, to make signed integers unsigned

  // Returns whether the codes follow each other without gaps, starting in the lowest bits.
  [[nodiscard]] bool is_dense() const {
    return parts == 0 && shifts.size() == 1 && shifts[0] == 0 && cycle_bits == bits;
  }
};

// A matrix of codes, in the same row-major order as the weight. `stored` has the words in row-major
// order. With kColumns, a line is a row of codes. With kRows, a line has one word per column, which
// holds codes of several rows.
struct PackedCodes {
  StoredTensor stored;
  CodePacking packing;
  std::uint64_t rows = 0;  // rows of codes
  std::uint64_t columns = 0;
  std::uint64_t line_bytes = 0;  // bytes of a line in `stored`
};

// The position of the scale, zero point or minimum for group g of row n.
enum class GroupPlace : std::uint8_t {
  kTable,  // in a table [matrices, rows, columns]: row (n % N) / row_block, column g (0 if there is
           // one)
  kFlat,   // at index (n * K + first column of g) / block
  kCycle,  // at index (n * K + first column of g) % block
};

// Scales that are themselves quantized, as in bitsandbytes. The value of scale i is map[code] *
// absmax[i / block] + offset, in float32.
struct NestedNumbers {
  std::vector<float> map;  // 256 values
  StoredTensor absmax;     // float32
  std::uint64_t count = 0;
  std::uint64_t block = 0;
  float offset = 0;
};

// The scales, fractional zero points or minima of a matrix, one value for each group.
struct GroupNumbers {
  StoredTensor stored;     // row-major; any float type, or integers of 8, 16 or 32 bits
  bool exponents = false;  // values are uint8 exponents e, which mean 2^(e - 127)
  std::uint64_t count = 0;
  GroupPlace place = GroupPlace::kTable;
  std::uint64_t rows = 1;  // rows per matrix
  std::uint64_t columns = 1;
  std::uint64_t row_block = 1;
  std::uint64_t block = 0;
  std::optional<NestedNumbers> nested;

  // If `inverse` is set, the reciprocal of each value is used. The value is divided by `divisor`.
  // Then it is multiplied by the second-level value of its matrix or, if `second_divides` is set,
  // divided by that value.
  bool inverse = false;
  double divisor = 1;
  std::optional<StoredTensor> second;  // one value, or one per matrix
  std::uint64_t second_count = 0;
  bool second_divides = false;
};

enum class CodeKind : std::uint8_t {
  kInteger,     // unsigned; value(q) = q
  kFloat4E2M1,  // value(q) = table[q]; `table` has the values of E2M1
  kFloat8,      // each code is a float of type `float8`; `table` has its 256 values
  kTable,       // value(q) = table[q], such as NF4
};

struct MatrixBlock;  // matrix_rows.h
struct BlockParts;
struct KeptParts;

// Reads a weight whose codes, scales and minima are stored together in blocks, as in GGUF files.
// Immutable; any number of threads may read.
class BlockReader {
 public:
  BlockReader() = default;
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  virtual ~BlockReader() = default;

  [[nodiscard]] virtual bool has_minima() const = 0;
  // Work like the functions of MatrixRows with these names. Errors are those of reading.
  [[nodiscard]] virtual Status read(const MatrixBlock& block, BlockParts& parts) const = 0;
  [[nodiscard]] virtual Status read_floats(const MatrixBlock& block,
                                           std::span<float> out) const = 0;
  // Fills `out` with whole rows in the layout of MatMulNBits, with the groups as its blocks.
  [[nodiscard]] virtual Status read_kept(std::uint64_t row, std::uint64_t rows,
                                         const KeptParts& out) const = 0;
};

struct QuantizedMatrix {
  std::string method;  // "GPTQ", "AWQ", "compressed-tensors", ...
  std::string name;    // name of the weight

  // The weight consists of `matrices` matrices of `rows` x `columns`, one after another. `codes`
  // has as many codes, in the same order.
  std::uint64_t matrices = 1;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  PackedCodes codes;
  CodeKind kind = CodeKind::kInteger;
  DType float8 = DType::kFloat8E4M3Fn;
  std::vector<float> table;

  // Group g of a row consists of the columns [g * group, (g + 1) * group); the last group may have
  // fewer columns. If `group_index` (int32 or int64 [columns]) is set, element k of it is the group
  // of column k instead.
  std::uint64_t group = 0;
  std::uint64_t groups = 0;
  std::optional<StoredTensor> group_index;

  GroupNumbers scales;

  // At most one of `zero_codes` and `zeros` is set. If neither is set, all zero points are `zero`.
  std::optional<PackedCodes> zero_codes;  // [rows of all matrices, groups], packed like codes
  std::uint32_t zero_add = 0;             // added to each zero code, modulo 2^bits
  std::optional<GroupNumbers> zeros;      // fractional
  double zero = 0;
  double zeros_offset = 0;  // added to the values of `zeros`

  std::optional<GroupNumbers> minima;          // b in the formula
  bool minima_negated = false;                 // the stored values are -b
  std::optional<StoredTensor> column_factors;  // c in the formula, [columns]

  // If not null, this reader supplies the codes, scales, zero points and minima; of the members
  // above only the sizes, `zero` and the number of bits are used. The codes are then integers in
  // the order of the columns.
  std::shared_ptr<const BlockReader> blocks;

  // The stored tensors that the weight replaces, with their storages.
  std::vector<TensorView> parts;

  // Returns the number of rows in all matrices, which cannot overflow after check_matrix().
  [[nodiscard]] std::uint64_t all_rows() const { return matrices * rows; }
  [[nodiscard]] bool has_minima() const {
    return minima.has_value() || (blocks != nullptr && blocks->has_minima());
  }
};

// Checks every size and index in the matrix against the stored tensors, so that later reads stay
// inside them. Fails with kCorrupt; the message states the inconsistent tensors. Every matrix in a
// checkpoint has passed this check.
[[nodiscard]] Status check_matrix(const QuantizedMatrix& matrix);

// Describes a matrix in text: "GPTQ, 4 bits, groups of 128, with g_idx".
[[nodiscard]] std::string describe_matrix(const QuantizedMatrix& matrix);

// Return all values of E2M1, and of an 8-bit float type, in the order of their codes.
[[nodiscard]] std::vector<float> float4_table();
[[nodiscard]] std::vector<float> float8_table(DType float8);

}  // namespace onnx_external
