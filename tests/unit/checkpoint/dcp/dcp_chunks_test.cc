#include "checkpoint/dcp/dcp_chunks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using Random = std::mt19937;

std::int64_t up_to(Random& random, std::int64_t most) {  // 1 to `most`
  return std::uniform_int_distribution<std::int64_t>(1, most)(random);
}

// Cuts the box in two along a random dimension, again and again.
std::vector<ChunkBox> random_cuts(Random& random, const Shape& shape, int cuts) {
  std::vector<ChunkBox> boxes = {{std::vector<std::int64_t>(shape.size(), 0), shape}};
  for (int i = 0; i < cuts; ++i) {
    const auto which =
        static_cast<std::size_t>(up_to(random, static_cast<std::int64_t>(boxes.size())) - 1);
    const auto d =
        static_cast<std::size_t>(up_to(random, static_cast<std::int64_t>(shape.size())) - 1);
    if (boxes[which].sizes[d] < 2) {
      continue;
    }
    const std::int64_t at = up_to(random, boxes[which].sizes[d] - 1);
    ChunkBox rest = boxes[which];
    rest.offsets[d] += at;
    rest.sizes[d] -= at;
    boxes[which].sizes[d] = at;
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

Shape random_shape(Random& random) {
  Shape shape;
  for (std::int64_t rank = up_to(random, 4); rank > 0; --rank) {
    shape.push_back(up_to(random, 9));
  }
  return shape;
}

TEST(ChunkCover, AcceptsEveryWayToCutATensor) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const Shape shape = random_shape(random);
    EXPECT_THAT(check_cover(shape, random_cuts(random, shape, i % 20)), IsOk());
  }
}

TEST(ChunkCover, NoticesEveryMissingBox) {
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const Shape shape = random_shape(random);
    std::vector<ChunkBox> boxes = random_cuts(random, shape, i % 20);
    boxes.pop_back();
    EXPECT_THAT(check_cover(shape, boxes),
                FailsWith(ErrorCode::kCorrupt, "none of its chunks contains the element"));
  }
}

TEST(ChunkCover, NoticesEveryOverlapAlsoWhenTheVolumesAddUp) {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    const Shape shape = random_shape(random);
    std::vector<ChunkBox> boxes = random_cuts(random, shape, i % 20);
    boxes.push_back(boxes.front());
    EXPECT_THAT(check_cover(shape, boxes),
                FailsWith(ErrorCode::kCorrupt, "more than one of its chunks"));
  }
  const std::vector<ChunkBox> twice = {{{0, 0}, {1, 2}}, {{0, 0}, {1, 2}}};
  EXPECT_THAT(check_cover(Shape{2, 2}, twice), FailsWith(ErrorCode::kCorrupt, "element [0, 0]"));
}

TEST(ChunkCover, NamesTheFirstElementThatIsWrong) {
  const std::vector<ChunkBox> boxes = {{{0, 0}, {3, 2}}, {{0, 2}, {1, 2}}, {{2, 2}, {1, 2}}};
  EXPECT_THAT(check_cover(Shape{3, 4}, boxes), FailsWith(ErrorCode::kCorrupt, "element [1, 2]"));
}

TEST(ChunkCover, WantsOneChunkForAScalar) {
  const ChunkBox scalar = {{}, {}};
  EXPECT_THAT(check_cover(Shape{}, {{scalar}}), IsOk());
  EXPECT_THAT(check_cover(Shape{}, {}), FailsWith(ErrorCode::kCorrupt, "none of its chunks"));
  EXPECT_THAT(check_cover(Shape{}, {{scalar, scalar}}),
              FailsWith(ErrorCode::kCorrupt, "more than one"));
}

TEST(ChunkCover, RefusesBoxesThatReachOut) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  for (const ChunkBox& box : {ChunkBox{{1}, {2}}, ChunkBox{{kFar}, {1}}, ChunkBox{{0}, {kFar}},
                              ChunkBox{{kFar}, {kFar}}}) {
    EXPECT_THAT(check_cover(Shape{2}, {{box}}), FailsWith(ErrorCode::kCorrupt, "extends beyond"));
  }
}

TEST(ChunkCover, RefusesMoreCutDimensionsThanCanBeChecked) {
  const auto halves = [](std::size_t rank) {
    const std::vector<ChunkBox> boxes = {{std::vector<std::int64_t>(rank, 0), Shape(rank, 1)}};
    return check_cover(Shape(rank, 2), boxes);
  };
  EXPECT_THAT(halves(8), FailsWith(ErrorCode::kCorrupt, "none of its chunks contains the element"));
  EXPECT_THAT(halves(9), FailsWith(ErrorCode::kUnsupported, "too many to check"));
}

TEST(ChunkCover, HoldsForTheLargestTensors) {
  const std::int64_t side = std::int64_t{1} << 31;  // 2^62 elements
  const std::vector<ChunkBox> boxes = {{{0, 0}, {side, 5}}, {{0, 5}, {side, side - 5}}};
  EXPECT_THAT(check_cover(Shape{side, side}, boxes), IsOk());
  const std::vector<ChunkBox> hole = {{{0, 0}, {side, 5}}, {{0, 5}, {side - 1, side - 5}}};
  EXPECT_THAT(check_cover(Shape{side, side}, hole),
              FailsWith(ErrorCode::kCorrupt, "element [2147483647, 5]"));
}

// A tensor of consecutive numbers, its chunks one behind the other in a file.
class ChunkedFile {
 public:
  ChunkedFile(const Shape& shape, const std::vector<ChunkBox>& boxes) : shape_(shape) {
    values_.resize(*element_count(shape));
    std::iota(values_.begin(), values_.end(), 1U);
    std::string bytes;
    for (const ChunkBox& box : boxes) {
      starts_.push_back(bytes.size());
      put(box, 0, 0, bytes);
    }
    file_ = *SourceFile::open(dir_.write("chunks", bytes));
    std::vector<ChunkSource> sources;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      ChunkSource source{.box = boxes[i], .view = {}, .storage = {}, .file = file_};
      source.view.dtype = DType::kInt32;
      source.view.shape = boxes[i].sizes;
      source.view.strides = contiguous_strides(boxes[i].sizes);
      source.storage.offset = starts_[i];
      sources.push_back(source);
    }
    tensor_ = std::make_unique<ChunkedTensor>(DType::kInt32, shape, std::move(sources));
  }

  void expect_range(std::uint64_t first, std::uint64_t length) const {
    std::string got(static_cast<std::size_t>(length), '\0');
    ASSERT_THAT(tensor_->read(first, std::as_writable_bytes(std::span(got))), IsOk());
    const std::string all(reinterpret_cast<const char*>(values_.data()), nbytes());
    EXPECT_TRUE(got == all.substr(static_cast<std::size_t>(first), got.size()))
        << shape_text(shape_) << " in " << starts_.size() << " chunks, bytes " << first << " + "
        << length;
  }
  [[nodiscard]] std::uint64_t nbytes() const { return values_.size() * sizeof(std::uint32_t); }

 private:
  void put(const ChunkBox& box, std::size_t d, std::uint64_t element, std::string& bytes) const {
    if (d == shape_.size()) {
      bytes.append(reinterpret_cast<const char*>(&values_[static_cast<std::size_t>(element)]),
                   sizeof(std::uint32_t));
      return;
    }
    for (std::int64_t i = 0; i < box.sizes[d]; ++i) {
      put(box, d + 1,
          element * static_cast<std::uint64_t>(shape_[d]) +
              static_cast<std::uint64_t>(box.offsets[d] + i),
          bytes);
    }
  }

  TempDir dir_;
  Shape shape_;
  std::vector<std::uint32_t> values_;
  std::vector<std::size_t> starts_;
  std::shared_ptr<const SourceFile> file_;
  std::unique_ptr<ChunkedTensor> tensor_;
};

TEST(ChunkedTensor, GivesAnyRangeOfAnyCut) {
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    const Shape shape = random_shape(random);
    const ChunkedFile file(shape, random_cuts(random, shape, i % 20));
    file.expect_range(0, file.nbytes());
    for (int j = 0; j < 10; ++j) {
      const auto first =
          static_cast<std::uint64_t>(up_to(random, static_cast<std::int64_t>(file.nbytes())) - 1);
      const auto length = static_cast<std::uint64_t>(
          up_to(random, static_cast<std::int64_t>(file.nbytes() - first)));
      file.expect_range(first, length);
    }
  }
}

TEST(ChunkedTensor, ReadsChunksThatAreLargerThanItsScratch) {
  const std::vector<ChunkBox> columns = {
      {{0, 0}, {700, 300}}, {{0, 300}, {700, 1}}, {{0, 301}, {700, 199}}};
  const ChunkedFile file({700, 500}, columns);
  ASSERT_GT(700 * 300 * sizeof(float), ChunkedTensor::kScatterBytes);
  file.expect_range(0, file.nbytes());
  file.expect_range(2001, file.nbytes() - 4001);
}

}  // namespace
}  // namespace onnx_external
