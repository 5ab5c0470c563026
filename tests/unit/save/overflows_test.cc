// Values that are too large for the type that they are converted to.
#include "save/overflows.h"

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kHalf = onnx::TensorProto::FLOAT16;

std::string bytes_of_floats(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Overflows : public testing::Test {
 protected:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  std::vector<TestTensor> tensors_ = {
      {.name = "large",
       .shape = {2, 3},
       .bytes = bytes_of_floats({1, 70'000, -3e8F, kInfinity, kNan, 2})},
      {.name = "turned",
       .shape = {3, 2},
       .bytes = bytes_of_floats({65'504, 65'519, 65'520, 0, 1, 2}),
       .strides = std::vector<std::int64_t>{1, 3}},
      {.name = "infinite", .shape = {2}, .bytes = bytes_of_floats({kInfinity, -kInfinity})},
      {.name = "small", .shape = {2}, .bytes = bytes_of_floats({1, 2})},
  };

  Result<SaveReport> save(const SaveOptions& given) {
    GraphBuilder builder;
    std::vector<std::string> inputs;
    for (const TestTensor& tensor : tensors_) {
      builder.input(tensor.name, kHalf, tensor.shape);
      inputs.push_back(tensor.name);
    }
    builder.node("Use", inputs, {"y"}).output("y", kHalf, {1});
    SaveOptions options = given;
    options.write.sync = Sync::kNone;
    options.write.overwrite = Overwrite::kAllow;
    options.mapping.casts = Casts::kAllow;
    const std::vector<fs::path> paths{dir_.write("c.pt", torch_zip(tensors_))};
    return save_model_with_external_data(dir_.path() / "out", "model.onnx", "initializers", paths,
                                         builder.model(), options);
  }

  TempDir dir_;
};

TEST_F(Overflows, AreCountedInEveryLayout) {
  for (const Layout layout :
       {Layout::kPerTensor, Layout::kSingle, Layout::kShards, Layout::kInline}) {
    for (const std::uint64_t inline_below : {0U, 1000U}) {
      SaveOptions options;
      options.plan.layout = layout;
      options.plan.inline_below = inline_below;
      const auto report = save(options);
      ASSERT_THAT(report, IsOk());
      std::map<std::string, std::pair<std::uint64_t, double>> found;
      for (const SavedTensor& tensor : report->models[0].tensors) {
        found[tensor.slot] = {tensor.overflow.values, tensor.overflow.largest};
      }
      EXPECT_EQ(found["large"], std::pair(std::uint64_t{2}, 3e8));
      EXPECT_EQ(found["turned"], std::pair(std::uint64_t{1}, 65'520.0));
      EXPECT_EQ(found["infinite"].first, 0U);
      EXPECT_EQ(found["small"].first, 0U);
      const auto verified = verify_model(report->models[0].model);
      ASSERT_THAT(verified, IsOk());
      EXPECT_TRUE(verified->ok());
      EXPECT_EQ(verified->overflowed, verified->used_manifest ? 3U : 0U);
    }
  }
}

TEST_F(Overflows, AreNoneWhereNothingIsConverted) {
  tensors_.erase(tensors_.begin(), tensors_.end() - 1);
  const auto report = save({});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->models[0].tensors.front().overflow.values, 0U);
  EXPECT_EQ(verify_model(report->models[0].model)->overflowed, 0U);
}

TEST(HasInfinity, KnowsTheBitsOfEachType) {
  const auto has = [](DType dtype, auto bits) {
    std::vector<decltype(bits)> values(37, 1);
    const bool before = has_infinity(dtype, std::as_bytes(std::span(values)));
    values[20] = bits;
    return !before && has_infinity(dtype, std::as_bytes(std::span(values)));
  };
  EXPECT_TRUE(has(DType::kFloat16, std::uint16_t{0x7c00}));
  EXPECT_TRUE(has(DType::kFloat16, std::uint16_t{0xfc00}));
  EXPECT_FALSE(has(DType::kFloat16, std::uint16_t{0x7c01}));  // a NaN
  EXPECT_TRUE(has(DType::kBFloat16, std::uint16_t{0xff80}));
  EXPECT_FALSE(has(DType::kBFloat16, std::uint16_t{0x7f7f}));
  EXPECT_TRUE(
      has(DType::kFloat32, std::bit_cast<std::uint32_t>(-std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace onnx_external
