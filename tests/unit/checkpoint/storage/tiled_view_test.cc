#include "checkpoint/storage/tiled_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/digest.h"
#include "onnx_external/recipe.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

// A block of noise again and again, of a length that no row has.
std::string bytes_of(std::size_t count) {
  std::string block(100'003, '\0');
  std::uint32_t seed = 1;
  for (char& c : block) {
    seed = seed * 1664525U + 1013904223U;
    c = static_cast<char>(seed >> 24U);
  }
  std::string text;
  text.reserve(count);
  while (text.size() < count) {
    text.append(block, 0, count - text.size());
  }
  return text;
}

class Tiled : public testing::Test {
 protected:
  void open(const TestTensor& tensor) {
    const std::vector<std::filesystem::path> paths{dir_.write("c.pt", torch_zip({tensor}))};
    checkpoint_.emplace(open_checkpoint(paths).value());
  }
  const TensorView& view() const { return checkpoint_->tensors()[0]; }

  // All its bytes in pieces of about `piece` bytes, each of which must have the CRC that is told.
  std::string read_in_pieces(std::uint64_t piece, std::optional<DType> cast_to = {}) {
    const auto tiles = TiledView::of(*checkpoint_, view(), cast_to);
    const std::uint64_t bytes = *contiguous_nbytes(cast_to.value_or(view().dtype), view().shape);
    std::string out(bytes, '\0');
    IoBuffer tile;
    for (std::uint64_t first = 0; first < bytes; first += tiles->chunk_bytes(piece)) {
      const std::uint64_t length = std::min(tiles->chunk_bytes(piece), bytes - first);
      std::uint32_t crc = 0;
      const auto take = [&](std::uint64_t at, std::span<const std::byte> run) {
        shortest_ = std::min(shortest_, run.size());
        longest_ = std::max(longest_, run.size());
        std::memcpy(out.data() + at, run.data(), run.size());
        return Status();
      };
      EXPECT_THAT(tiles->read(first, length, tile, take, &crc), IsOk());
      Crc32 found;
      found.update(std::as_bytes(std::span(out)).subspan(first, length));
      EXPECT_EQ(crc, found.value());
    }
    return out;
  }

  std::string by_read(std::optional<DType> cast_to = {}) {
    const DType dtype = cast_to.value_or(view().dtype);
    std::string out(*contiguous_nbytes(dtype, view().shape), '\0');
    EXPECT_THAT(checkpoint_->read_as(view(), dtype, 0, std::as_writable_bytes(std::span(out))),
                IsOk());
    return out;
  }

  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
  std::size_t shortest_ = kTileBytes;
  std::size_t longest_ = 0;
};

using Strides = std::vector<std::int64_t>;

TEST_F(Tiled, GivesEveryByteOfATransposedMatrixInItsPlace) {
  // Tiles of some rows and some columns; of whole rows; of all rows; of whole columns.
  for (const Shape& shape : {Shape{9000, 24'000}, Shape{4500, 4500}, Shape{2, 20'000'000},
                             Shape{20, 1'000'000}, Shape{1'000'000, 20}}) {
    open({.name = "w",
          .dtype = DType::kUInt8,
          .shape = shape,
          .bytes = bytes_of(static_cast<std::size_t>(shape[0] * shape[1])),
          .strides = Strides{1, shape[0]}});
    const std::string expected = by_read();
    EXPECT_TRUE(read_in_pieces(1) == expected) << shape_text(shape);
    EXPECT_TRUE(read_in_pieces(5'000'000) == expected) << shape_text(shape);
  }
}

TEST_F(Tiled, GivesRunsOfFourKiBAndMoreOfMatricesThatAreLargeOnBothSides) {
  open({.name = "w",
        .dtype = DType::kUInt8,
        .shape = {9000, 24'000},
        .bytes = bytes_of(std::size_t{9000} * 24'000),
        .strides = Strides{1, 9000}});
  (void)read_in_pieces(1);
  EXPECT_GE(longest_, 4096U);
  EXPECT_LT(longest_, 24'000U);
  EXPECT_GE(shortest_, 24'000U % 4096U);  // the last of each row
}

TEST_F(Tiled, ReadsEachMatrixOfMany) {
  // [3, 2, 700, 900] of a storage [2, 3, 900, 700].
  open({.name = "w",
        .dtype = DType::kFloat16,
        .shape = {3, 2, 700, 900},
        .bytes = bytes_of(std::size_t{6} * 700 * 900 * 2),
        .strides = Strides{630'000, 1'890'000, 1, 700}});
  EXPECT_TRUE(read_in_pieces(1) == by_read());
}

TEST_F(Tiled, ConvertsValues) {
  open({.name = "w",
        .shape = {1500, 1700},
        .bytes = bytes_of(std::size_t{1500} * 1700 * 4),
        .strides = Strides{1, 1500}});
  EXPECT_TRUE(read_in_pieces(1, DType::kFloat16) == by_read(DType::kFloat16));
  EXPECT_TRUE(read_in_pieces(1, DType::kFloat64) == by_read(DType::kFloat64));
}

TEST_F(Tiled, StopsAtTheFirstErrorOfTheTaker) {
  open({.name = "w",
        .shape = {1500, 1700},
        .bytes = bytes_of(std::size_t{1500} * 1700 * 4),
        .strides = Strides{1, 1500}});
  const auto tiles = TiledView::of(*checkpoint_, view(), {});
  IoBuffer tile;
  EXPECT_THAT(tiles->read(0, tiles->chunk_bytes(1), tile,
                          [](std::uint64_t, std::span<const std::byte>) -> Status {
                            return fail(ErrorCode::kIo, "full disk");
                          }),
              FailsWith(ErrorCode::kIo, "full disk"));
}

TEST_F(Tiled, LeavesSmallMatricesAndOtherViewsToReadingInOrder) {
  open({.name = "w", .shape = {1500, 1700}, .bytes = bytes_of(std::size_t{1500} * 1700 * 4)});
  EXPECT_FALSE(TiledView::of(*checkpoint_, view(), {}));
  EXPECT_FALSE(TiledView::of(*checkpoint_, view(), DType::kFloat16));
  const auto turned = apply_recipe({RecipeStep::transpose()}, view());
  EXPECT_TRUE(TiledView::of(*checkpoint_, *turned, {}));
  TensorView other = *turned;
  other.shape = {100, 100};
  EXPECT_FALSE(TiledView::of(*checkpoint_, other, {}));  // small
  other.shape = {1700, 0};
  EXPECT_FALSE(TiledView::of(*checkpoint_, other, {}));
  other.shape = {1700, 1500};
  other.strides = {1, 0};
  EXPECT_FALSE(TiledView::of(*checkpoint_, other, {}));  // expanded
}

}  // namespace
}  // namespace onnx_external
