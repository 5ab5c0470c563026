#include "onnx_external/tensor.h"

#include <limits>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(ElementCount, OfAScalarIsOneAndOfAnyZeroIsZero) {
  EXPECT_EQ(element_count({}).value(), 1U);
  EXPECT_EQ(element_count(Shape{2, 3}).value(), 6U);
  EXPECT_EQ(element_count(Shape{kHuge, kHuge, 0}).value(), 0U);
}

TEST(ElementCount, RefusesProductsThatWrapToZero) {
  const std::int64_t half = std::int64_t{1} << 32;
  EXPECT_THAT(element_count(Shape{half, half}), FailsWith(ErrorCode::kCorrupt, "too large"));
  EXPECT_THAT(element_count(Shape{-1}), FailsWith(ErrorCode::kCorrupt, "negative"));
}

TEST(ContiguousNbytes, RefusesMoreThan2To63Bytes) {
  EXPECT_EQ(contiguous_nbytes(DType::kFloat32, Shape{3}).value(), 12U);
  EXPECT_THAT(contiguous_nbytes(DType::kFloat32, Shape{kHuge / 2}),
              FailsWith(ErrorCode::kCorrupt, "too large"));
}

TEST(IsContiguous, IgnoresStridesOfDimensionsOfSizeOneAndOfEmptyTensors) {
  EXPECT_TRUE(is_contiguous(Shape{2, 1, 3}, Shape{3, 99, 1}));
  EXPECT_FALSE(is_contiguous(Shape{2, 3}, Shape{1, 2}));
  EXPECT_TRUE(is_contiguous(Shape{0, 3}, Shape{7, 7}));
  EXPECT_FALSE(is_contiguous(Shape{4, 3}, Shape{0, 1}));
}

TEST(ExtentBytes, ReachesTheFurthestElement) {
  EXPECT_EQ(extent_bytes(DType::kFloat32, Shape{2, 3}, Shape{1, 2}).value(), 24U);
  EXPECT_EQ(extent_bytes(DType::kFloat32, Shape{1000, 3}, Shape{0, 1}).value(), 12U);
  EXPECT_EQ(extent_bytes(DType::kFloat32, Shape{0, 3}, Shape{kHuge, 1}).value(), 0U);
}

TEST(ExtentBytes, RefusesOverflowNegativeStridesAndOtherRanks) {
  EXPECT_THAT(extent_bytes(DType::kInt8, Shape{3, 2}, Shape{kHuge, 1}),
              FailsWith(ErrorCode::kCorrupt, "too large"));
  EXPECT_THAT(extent_bytes(DType::kInt8, Shape{3}, Shape{-1}),
              FailsWith(ErrorCode::kCorrupt, "negative"));
  EXPECT_THAT(extent_bytes(DType::kInt8, Shape{3}, Shape{1, 1}),
              FailsWith(ErrorCode::kCorrupt, "differ in length"));
}

TEST(OnnxShape, CountsValuesOfPackedFloat4) {
  EXPECT_EQ(onnx_shape(DType::kFloat4E2M1FnX2, Shape{4, 3}).value(), (Shape{4, 6}));
  EXPECT_EQ(onnx_shape(DType::kFloat32, Shape{4, 3}).value(), (Shape{4, 3}));
  EXPECT_THAT(onnx_shape(DType::kFloat4E2M1FnX2, {}), FailsWith(ErrorCode::kUnsupported, "scalar"));
}

TEST(OnnxNbytes, RoundsSubByteTypesUp) {
  EXPECT_EQ(onnx_nbytes(22, Shape{3}).value(), 2U);   // INT4
  EXPECT_EQ(onnx_nbytes(25, Shape{5}).value(), 2U);   // UINT2
  EXPECT_EQ(onnx_nbytes(15, Shape{3}).value(), 48U);  // COMPLEX128
  EXPECT_THAT(onnx_nbytes(8, Shape{3}), FailsWith(ErrorCode::kUnsupported, "STRING"));
  EXPECT_THAT(onnx_nbytes(1, Shape{kHuge}), FailsWith(ErrorCode::kCorrupt, "too large"));
}

TEST(ContiguousStrides, AreRowMajor) {
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape{});
}

TEST(ShapeText, ListsNoMoreThan64Dimensions) {
  EXPECT_EQ(shape_text(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text(Shape(64, 1)).find("..."), std::string::npos);
  const std::string text = shape_text(Shape(100'000, 1));
  EXPECT_EQ(text.size(), shape_text(Shape(64, 1)).size() + std::string(", ...").size());
  EXPECT_TRUE(text.ends_with(", 1, ...]"));
}

}  // namespace
}  // namespace onnx_external
