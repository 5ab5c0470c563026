#include <gmock/gmock.h>

#include <functional>

#include "support/torch_file.h"
#include "support/value_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

// {"w": a quantized tensor of the four bytes "abcd"}.
PickleBuilder quantized(const std::function<void(PickleBuilder&)>& quantizer,
                        const std::string& storage = "QInt8Storage", std::int64_t count = 4) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  begin_quantized(pickle, storage, count);
  quantizer(pickle);
  end_quantized(pickle);
  pickle.set_items().stop();
  return pickle;
}

PickleBuilder per_tensor(double scale, std::int64_t zero_point,
                         const std::string& storage = "QInt8Storage") {
  return quantized([&](PickleBuilder& p) { put_quantizer(p, scale, zero_point); }, storage);
}

Result<Checkpoint> open_quantized(const PickleBuilder& pickle, const OpenOptions& options = {}) {
  return open_bytes(zip_of(pickle, {"abcd"}), options);
}

TEST(Quantized, ListsScaleAndZeroPointBesideTheIntegers) {
  const auto checkpoint = open_quantized(per_tensor(0.25, -3));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w", "w.scale", "w.zero_point"));
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kInt8);
  EXPECT_EQ(checkpoint->tensors()[1].dtype, DType::kFloat32);
  EXPECT_EQ(checkpoint->tensors()[1].shape, Shape{});
  EXPECT_EQ(checkpoint->tensors()[2].dtype, DType::kInt8);
  EXPECT_EQ(read_all(*checkpoint, 0), "abcd");
  EXPECT_EQ(read_all(*checkpoint, 1), f32({0.25F}));
  EXPECT_EQ(read_all(*checkpoint, 2), "\xfd");
  EXPECT_NE(checkpoint->plain_range(0), std::nullopt);
  EXPECT_EQ(checkpoint->plain_range(1), std::nullopt);
}

TEST(Quantized, RoundsTheScaleToFloat32) {
  const auto checkpoint = open_quantized(per_tensor(0.1, 0, "QUInt8Storage"));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[2].dtype, DType::kUInt8);
  EXPECT_EQ(read_all(*checkpoint, 1), f32({0.1F}));
}

TEST(Quantized, ReadsAScaleThatIsAnInt) {
  const auto checkpoint = open_quantized(quantized([](PickleBuilder& p) {
    p.mark().global("torch", "per_tensor_affine").integer(2).integer(1).tuple();
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 1), f32({2.0F}));
}

TEST(Quantized, RejectsAScaleThatIsNotAPositiveFloat) {
  for (const double scale : {0.0, -1.0, 1e300, 1e-300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(open_quantized(per_tensor(scale, 0)),
                FailsWith(ErrorCode::kUnsupported, "not a positive float32"))
        << scale;
  }
}

TEST(Quantized, RefusesAZeroPointThatDoesNotFitTheIntegers) {
  EXPECT_THAT(open_quantized(per_tensor(1, 128)),
              FailsWith(ErrorCode::kUnsupported, "zero point 128 does not fit int8"));
  EXPECT_THAT(open_quantized(per_tensor(1, -1, "QUInt8Storage")),
              FailsWith(ErrorCode::kUnsupported, "does not fit uint8"));
}

TEST(Quantized, RefusesAQuantizerWithoutNumbers) {
  EXPECT_THAT(open_quantized(quantized([](PickleBuilder& p) {
                p.mark().global("torch", "per_tensor_affine").none().integer(1).tuple();
              })),
              FailsWith(ErrorCode::kCorrupt, "no scale and zero point"));
}

TEST(Quantized, RefusesUnknownSchemes) {
  EXPECT_THAT(open_quantized(quantized([](PickleBuilder& p) {
                p.mark().global("torch", "per_row").integer(1).integer(1).tuple();
              })),
              FailsWith(ErrorCode::kUnsupported, "quantizer 'per_row'"));
}

TEST(Quantized, RefusesPackedIntegersByName) {
  EXPECT_THAT(open_quantized(per_tensor(1, 0, "QUInt4x2Storage")),
              FailsWith(ErrorCode::kUnsupported, "save tensor.dequantize()"));
}

TEST(Quantized, RefusesAPlainStorageInAQuantizedTensor) {
  EXPECT_THAT(open_quantized(per_tensor(1, 0, "CharStorage")),
              FailsWith(ErrorCode::kCorrupt, "is not a class for quantized tensors"));
}

TEST(Quantized, RefusesAQuantizedStorageInAPlainTensor) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage").global("torch", "QInt8Storage").string("0").string("cpu");
  pickle.integer(4).tuple().persistent_id().integer(0).integers({4}).integers({1});
  pickle.boolean(false).ordered_dict().tuple().reduce().set_items().stop();
  EXPECT_THAT(open_quantized(pickle), FailsWith(ErrorCode::kCorrupt, "the tensor has no scale"));
}

TEST(Quantized, RefusesANameThatAnotherTensorHas) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  begin_quantized(pickle, "QInt8Storage", 4);
  put_quantizer(pickle, 1, 0);
  end_quantized(pickle);
  pickle.string("w.scale");
  put_whole(pickle, DType::kUInt8, {4}, 0);
  pickle.set_items().stop();
  EXPECT_THAT(open_quantized(pickle),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name 'w.scale'"));
}

TEST(Quantized, RefusesANameThatAnotherTensorHasBesideOnesThatAreNotRead) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  begin_quantized(pickle, "QInt8Storage", 4);
  put_quantizer(pickle, 1, 0);
  end_quantized(pickle);
  pickle.string("w.scale");
  put_whole(pickle, DType::kUInt8, {4}, 0);
  for (const std::string refused : {"a", "b", "c"}) {
    pickle.string(refused).global("torch._utils", "_rebuild_nested_tensor").empty_tuple().reduce();
  }
  pickle.set_items().stop();
  EXPECT_THAT(open_quantized(pickle, {.selection = Selection::kEverything}),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name 'w.scale'"));
}

struct Channels {
  DType scale_type = DType::kFloat64;
  Shape scale_shape = {4};
  std::string scales = bytes_of<double>({0.5, 1, 2, 4});
  DType zero_point_type = DType::kInt64;
  std::string zero_points = bytes_of<std::int64_t>({0, 1, -2, 3});
  std::int64_t axis = 0;
};

Result<Checkpoint> open_channels(const Channels& channels) {
  const PickleBuilder pickle = quantized([&](PickleBuilder& p) {
    p.mark().global("torch", "per_channel_affine");
    put_whole(p, channels.scale_type, channels.scale_shape, 1);
    put_whole(p, channels.zero_point_type, {4}, 2);
    p.integer(channels.axis).tuple();
  });
  return open_bytes(zip_of(pickle, {"abcd", channels.scales, channels.zero_points}));
}

TEST(Quantized, ConvertsTheNumbersOfChannels) {
  const auto checkpoint = open_channels({});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w", "w.scale", "w.zero_point", "w.axis"));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({0.5, 1, 2, 4}));
  EXPECT_EQ(read_all(*checkpoint, 2), std::string("\0\x01\xfe\x03", 4));
  EXPECT_EQ(read_all(*checkpoint, 3), bytes_of<std::int64_t>({0}));
  EXPECT_EQ(checkpoint->tensors()[3].dtype, DType::kInt64);
}

TEST(Quantized, KeepsZeroPointsThatAreFractions) {
  const auto checkpoint =
      open_channels({.zero_point_type = DType::kFloat32, .zero_points = f32({0.5, 1.5, 2.5, 3.5})});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[2].dtype, DType::kFloat32);
  EXPECT_EQ(read_all(*checkpoint, 2), f32({0.5, 1.5, 2.5, 3.5}));
}

TEST(Quantized, RefusesAnAxisOutsideTheShape) {
  for (const std::int64_t axis : {std::int64_t{-1}, std::int64_t{1}, INT64_MAX}) {
    EXPECT_THAT(open_channels({.axis = axis}), FailsWith(ErrorCode::kCorrupt, "axis"));
  }
}

TEST(Quantized, RefusesScalesForOtherChannels) {
  EXPECT_THAT(open_channels({.scale_shape = {2, 2}}),
              FailsWith(ErrorCode::kCorrupt, "the shape [2, 2] for 4 channels"));
}

TEST(Quantized, RejectsScalesThatAreNotFloats) {
  EXPECT_THAT(open_channels({.scale_type = DType::kInt64}),
              FailsWith(ErrorCode::kUnsupported, "scales are int64"));
}

TEST(Quantized, RefusesZeroPointsOfAnUnknownType) {
  EXPECT_THAT(open_channels({.zero_point_type = DType::kBool, .zero_points = "abcd"}),
              FailsWith(ErrorCode::kUnsupported, "zero points are bool"));
}

TEST(Quantized, BoundsWhatAnExpandedScaleTakes) {
  // 2^40 channels over one byte and one scale: nothing of that size is read or kept.
  const std::int64_t huge = std::int64_t{1} << 40;
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  pickle.global("torch._utils", "_rebuild_qtensor").mark();
  pickle.mark().string("storage").global("torch", "QInt8Storage").string("0").string("cpu");
  pickle.integer(4).tuple().persistent_id().integer(0).integers({huge}).integers({0});
  pickle.mark().global("torch", "per_channel_affine");
  const TestTensor scale{.dtype = DType::kFloat64, .shape = {huge}, .strides = {{0}}};
  put_tensor(pickle, scale, "1", 8);
  put_tensor(pickle, scale, "1", 8);
  pickle.integer(0).tuple();
  end_quantized(pickle);
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle, {"abcd", bytes_of<double>({1})})),
              FailsWith(ErrorCode::kUnsupported, "--max-expand"));
}

TEST(Quantized, BoundsWhatAnExpandedPartOfAWeightTakes) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const std::vector<TestTensor> tensors{{.name = "a.weight_packed",
                                         .dtype = DType::kUInt8,
                                         .shape = {8, 16},
                                         .bytes = std::string(128, '\0')},
                                        {.name = "a.weight_scale",
                                         .dtype = DType::kUInt8,
                                         .shape = {8, 1},
                                         .bytes = std::string(8, '\0')},
                                        {.name = "a.weight_zero_point",
                                         .dtype = DType::kInt8,
                                         .shape = {huge},
                                         .bytes = std::string(1, '\0'),
                                         .strides = {{0}}}};
  EXPECT_THAT(open_bytes(torch_zip(tensors)), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
}

}  // namespace
}  // namespace onnx_external
