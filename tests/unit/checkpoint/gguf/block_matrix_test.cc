#include "checkpoint/gguf/block_matrix.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/quantized/matrix_rows.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAreArray;

constexpr std::uint64_t kColumns = 512;

const BlockType& type_of(std::string_view name) {
  const auto all = all_block_types();
  return *std::find_if(all.begin(), all.end(),
                       [&](const BlockType& type) { return type.name == name; });
}

StoredTensor in_memory(std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes) {
  StoredTensor stored;
  stored.view.name = std::move(name);
  stored.view.dtype = dtype;
  stored.view.shape = std::move(shape);
  stored.read = [bytes = std::move(bytes)](std::uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return Status();
  };
  return stored;
}

// Rows of pseudo-random blocks. Their bytes are below 64, so no scale is a NaN.
BlockTensor tensor_of(std::string_view type_name, std::uint64_t rows, std::uint32_t seed = 1) {
  const BlockType& type = type_of(type_name);
  std::vector<std::byte> bytes(rows * kColumns / type.values * type.bytes);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(seed >> 26);
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  return {in_memory("blk.0.weight", DType::kUInt8, {size}, std::move(bytes)), &type, rows,
          kColumns};
}

std::vector<float> plain_floats(const BlockTensor& tensor) {
  const auto size = tensor.rows * kColumns / tensor.type->values * tensor.type->bytes;
  std::vector<std::byte> bytes(size);
  EXPECT_THAT(tensor.stored.read(0, bytes), IsOk());
  std::vector<float> floats(tensor.rows * kColumns);
  decode_row(*tensor.type, bytes, floats);
  return floats;
}

std::vector<float> row_of(const std::vector<float>& floats, std::uint64_t row) {
  const auto first = floats.begin() + static_cast<std::ptrdiff_t>(row * kColumns);
  return {first, first + kColumns};
}

MatrixRows opened(std::uint64_t matrices, std::uint64_t rows, BlockRows source) {
  auto matrix = block_matrix("q_proj.weight", matrices, rows, std::move(source));
  EXPECT_THAT(matrix, IsOk());
  return *MatrixRows::open(std::make_shared<const QuantizedMatrix>(*std::move(matrix)));
}

std::vector<float> floats_of(const MatrixRows& rows, const MatrixBlock& block) {
  std::vector<float> floats(block.rows * block.columns);
  EXPECT_THAT(rows.read_floats(block, floats), IsOk());
  return floats;
}

TEST(BlockMatrix, HasTheFloatsOfItsRows) {
  const BlockTensor tensor = tensor_of("Q4_K", 6);
  const auto stored = plain_floats(tensor);
  const MatrixRows rows = opened(1, 4, {.tensors = {tensor}, .first_row = 2});
  const auto floats = floats_of(rows, {0, 4, 0, kColumns});
  EXPECT_THAT(floats, ElementsAreArray(stored.begin() + 2 * kColumns, stored.end()));
}

TEST(BlockMatrix, ReadsPartsOfRows) {
  const BlockTensor tensor = tensor_of("Q6_K", 2);
  const auto stored = plain_floats(tensor);
  const MatrixRows rows = opened(1, 2, {.tensors = {tensor}});
  const auto second = row_of(stored, 1);
  EXPECT_THAT(floats_of(rows, {1, 1, 250, 9}),
              ElementsAreArray(second.begin() + 250, second.begin() + 259));
}

TEST(BlockMatrix, PutsTheHalvesOfHeadsBehindEachOther) {
  const BlockTensor tensor = tensor_of("Q8_0", 8);
  const auto stored = plain_floats(tensor);
  const MatrixRows rows = opened(1, 8, {.tensors = {tensor}, .head_rows = 4});
  const std::vector<std::uint64_t> order = {0, 2, 1, 3, 4, 6, 5, 7};
  for (std::uint64_t first = 0; first < 8; ++first) {
    const auto floats = floats_of(rows, {first, 8 - first, 0, kColumns});
    for (std::uint64_t i = first; i < 8; ++i) {
      EXPECT_EQ(row_of(floats, i - first), row_of(stored, order[i])) << first << " " << i;
    }
  }
}

TEST(BlockMatrix, TakesRowsOfTensorsInTurn) {
  const BlockTensor gate = tensor_of("MXFP4", 4);
  const BlockTensor up = tensor_of("MXFP4", 4, 2);
  const MatrixRows rows = opened(2, 4, {.tensors = {gate, up}});
  const auto floats = floats_of(rows, {1, 6, 0, kColumns});
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto& from = (i + 1) % 2 == 0 ? gate : up;
    EXPECT_EQ(row_of(floats, i), row_of(plain_floats(from), (i + 1) / 2)) << i;
  }
}

TEST(BlockMatrix, MultipliesEachMatrixByItsFactor) {
  const BlockTensor tensor = tensor_of("NVFP4", 4);
  const std::vector<float> numbers = {3.1F, 0.7F};
  const auto bytes = std::as_bytes(std::span(numbers));
  const MatrixRows rows =
      opened(2, 2,
             {.tensors = {tensor},
              .factors = in_memory("a.scale", DType::kFloat32, {2}, {bytes.begin(), bytes.end()})});
  auto expected = plain_floats(tensor);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] *= numbers[i / (2 * kColumns)];
  }
  EXPECT_EQ(floats_of(rows, {0, 4, 0, kColumns}), expected);
}

TEST(BlockMatrix, IsCodesScalesAndMinimaOfItsFloats) {
  for (const BlockType& type : all_block_types()) {
    if (!type.is_quantized()) {
      continue;
    }
    const MatrixRows rows = opened(1, 3, {.tensors = {tensor_of(type.name, 3)}});
    const MatrixBlock block{1, 2, 40, 300};
    const auto floats = floats_of(rows, block);
    BlockParts parts;
    ASSERT_THAT(rows.read(block, parts), IsOk());
    ASSERT_EQ(parts.minima.empty(), !type.has_minima);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const std::size_t column = block.column + i % block.columns;
      const std::size_t group =
          i / block.columns * parts.groups + column / type.group - parts.first_group;
      const auto product =
          static_cast<float>((parts.codes[i] - rows.matrix().zero) * parts.scales[group]);
      const float value =
          type.has_minima ? product + static_cast<float>(parts.minima[group]) : product;
      ASSERT_EQ(value, floats[i]) << type.name << " " << i;
    }
  }
}

TEST(BlockMatrix, IsPackedAsItsPartsSay) {
  for (const BlockType& type : all_block_types()) {
    if (!type.is_quantized()) {
      continue;
    }
    const MatrixRows rows = opened(1, 3, {.tensors = {tensor_of(type.name, 3)}});
    const std::size_t groups = kColumns / type.group;
    std::vector<std::byte> codes(2 * kColumns * type.bits / 8);
    std::vector<float> scales(2 * groups);
    std::vector<float> terms(type.has_minima ? 2 * groups : 0);
    ASSERT_THAT(rows.matrix().blocks->read_kept(1, 2,
                                                {codes, std::as_writable_bytes(std::span(scales)),
                                                 std::as_writable_bytes(std::span(terms))}),
                IsOk());
    BlockParts parts;
    ASSERT_THAT(rows.read({1, 2, 0, kColumns}, parts), IsOk());
    for (std::size_t i = 0; i < parts.codes.size(); ++i) {
      const auto byte = static_cast<unsigned>(codes[i * type.bits / 8]);
      const unsigned code = type.bits == 8 ? byte : (byte >> (4 * (i % 2))) & 15U;
      ASSERT_EQ(code, parts.codes[i]) << type.name << " " << i;
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      ASSERT_EQ(scales[i], parts.scales[i]) << type.name;
      if (type.has_minima) {
        ASSERT_EQ(terms[i], static_cast<float>(parts.minima[i] + type.middle * parts.scales[i]))
            << type.name;
      }
    }
  }
}

TEST(BlockMatrix, ThatDoesNotFitItsTensorsIsCorrupt) {
  const auto fails = [](std::uint64_t rows, BlockRows source, const std::string& text) {
    EXPECT_THAT(block_matrix("a", 1, rows, std::move(source)),
                FailsWith(ErrorCode::kCorrupt, text));
  };
  const BlockTensor tensor = tensor_of("Q4_0", 4);
  fails(5, {.tensors = {tensor}}, "its 4 rows from 0 on do not yield 5");
  fails(1, {.tensors = {tensor}, .first_row = 4}, "its 4 rows from 4 on do not yield 1");
  fails(3, {.tensors = {tensor, tensor}}, "do not yield 3");
  fails(4, {.tensors = {tensor}, .head_rows = 3}, "4 rows cannot be divided into heads of 3");
  fails(4, {.tensors = {tensor, tensor_of("Q8_0", 4)}}, "differs in type or shape from");
  BlockTensor short_one = tensor;
  short_one.stored.view.shape[0] -= 1;
  fails(4, {.tensors = {short_one}}, "4 rows of 512 Q4_0 values are not 1151 bytes");
  BlockTensor ragged = tensor;
  ragged.columns = 500;
  fails(4, {.tensors = {ragged}},
        "rows of 500 values cannot be divided into blocks of Q4_0, which have 32 values");
  fails(4, {.tensors = {tensor}, .factors = in_memory("a.scale", DType::kFloat32, {3}, {})},
        "does not contain one float32 for each matrix");
}

}  // namespace
}  // namespace onnx_external
