// Saves that convert element types on the way.
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/verify.h"
#include "save/make_plan.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kFloat16 = onnx::TensorProto::FLOAT16;

// Floats of all sizes.
std::string floats(std::size_t count, std::uint32_t seed) {
  std::string bytes(4 * count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const float value = static_cast<float>(seed) * (i % 3 == 0 ? 1e-14F : 1e-6F);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

std::string as_half(const std::string& bytes) {
  std::string out(bytes.size() / 2, '\0');
  cast_elements(DType::kFloat32, DType::kFloat16, std::as_bytes(std::span(bytes)),
                std::as_writable_bytes(std::span(out)));
  return out;
}

class Converted : public testing::Test {
 protected:
  // A large tensor, a transposed one, one of halves already, and the large one again for a slot of
  // floats; the graph wants halves but for that.
  std::vector<TestTensor> tensors_ = {
      {.name = "large", .shape = {1000, 700}, .bytes = floats(700'000, 1)},
      {.name = "turned",
       .shape = {40, 30},
       .bytes = floats(1200, 2),
       .strides = std::vector<std::int64_t>{1, 40}},
      {.name = "half", .dtype = DType::kFloat16, .shape = {8}, .bytes = noise(16, 3)},
      {.name = "float", .shape = {1000, 700}, .shares = "large"},
      {.name = "tied", .shape = {1000, 700}, .shares = "large"},
  };
  Model model() const {
    GraphBuilder builder;
    std::vector<std::string> inputs;
    for (const TestTensor& tensor : tensors_) {
      builder.input(tensor.name, tensor.name == "float" ? kFloat : kFloat16, tensor.shape);
      inputs.push_back(tensor.name);
    }
    builder.node("Use", inputs, {"y"}).output("y", kFloat16, {1});
    return Model::from_proto(builder.model(), {}).value();
  }
  Checkpoint checkpoint() const { return open_one(dir_.write("c.pt", torch_zip(tensors_))); }
  std::vector<ExpectedTensor> expected(Casts casts) const {
    std::vector<ExpectedTensor> all;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      all.push_back({tensors_[i].name, 0, i, ExpectedBy::kMapping, casts, {}});
    }
    return all;
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

TEST_F(Converted, WritesTheValuesInTheTypeOfTheSlot) {
  Model graph = model();
  ASSERT_THAT(save_all(checkpoint(), graph, out_, fast()), IsOk());
  const fs::path data = out_ / "initializers";
  EXPECT_TRUE(read_text(data / "large") == as_half(tensors_[0].bytes));
  EXPECT_TRUE(read_text(data / "float") == tensors_[0].bytes);
  EXPECT_EQ(read_text(data / "half"), tensors_[2].bytes);
  const std::string turned = as_half(tensors_[1].bytes);
  EXPECT_EQ(read_text(data / "turned").substr(2, 2), turned.substr(2 * 40, 2));
  EXPECT_FALSE(fs::exists(data / "tied"));
  EXPECT_TRUE(is_complete(out_));
  const auto saved = Model::load(out_ / "model.onnx");
  ASSERT_THAT(saved, IsOk());
  EXPECT_EQ(saved->external_tensors()[0].data_type, kFloat16);
}

TEST_F(Converted, GivesTheSameBytesInEveryLayoutAndNumberOfThreads) {
  const Checkpoint opened = checkpoint();
  std::map<std::string, std::string> first;
  for (const int threads : {1, 5}) {
    WriteOptions options = fast();
    options.threads = threads;
    PlanOptions layout;
    layout.layout = Layout::kSingle;
    Model graph = model();
    out_ = dir_.path() / std::to_string(threads);
    ASSERT_THAT(save_all(opened, graph, out_, options, layout), IsOk());
    const auto tree = tree_of(out_);
    EXPECT_TRUE(first.empty() || first == tree);
    first = tree;
  }
}

TEST_F(Converted, IsVerifiedAgainstTheConvertedValues) {
  const Checkpoint opened = checkpoint();
  Model graph = model();
  ASSERT_THAT(save_all(opened, graph, out_, fast()), IsOk());
  const auto verify = [&](Casts casts) {
    return verify_model_against(out_ / "model.onnx", opened, expected(casts));
  };
  const auto good = verify(Casts::kAllow);
  ASSERT_THAT(good, IsOk());
  EXPECT_TRUE(good->ok());
  EXPECT_EQ(good->compared, 5U);
  EXPECT_EQ(good->converted, 3U);
  const auto strict = verify(Casts::kRefuse);
  ASSERT_THAT(strict, IsOk());
  ASSERT_EQ(strict->findings.size(), 3U);
  EXPECT_EQ(strict->findings[0].code, FindingCode::kTypeDiffers);

  std::string damaged = read_text(out_ / "initializers/large");
  damaged[777'777] ^= 1;
  dir_.write("out/initializers/large", damaged);
  const auto found = verify(Casts::kAllow);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->findings.size(), 4U);  // bytes and CRC, of two names
  EXPECT_EQ(found->findings[0].code, FindingCode::kBytesDiffer);
  EXPECT_EQ(found->findings[0].message.substr(0, 11), "byte 777777");
}

TEST_F(Converted, FindsDamageInTheSource) {
  std::string bytes = torch_zip(tensors_);
  bytes[bytes.find(tensors_[1].bytes) + 500] ^= 1;
  Model graph = model();
  EXPECT_THAT(save_all(open_one(dir_.write("c.pt", bytes)), graph, out_, fast()),
              FailsWith(ErrorCode::kCorrupt, "c.pt"));
}

TEST_F(Converted, RefusesATypeThatTheGraphDoesNotState) {
  const Checkpoint opened = checkpoint();
  const Model graph = model();
  EXPECT_THAT(
      make_plan(graph, opened, map_by_name(graph, opened), {.dtype = DType::kFloat16}),
      FailsWith(ErrorCode::kMismatch,
                "slot 'float': the graph states FLOAT, so its weight cannot become float16"));
}

TEST_F(Converted, GivesUntypedSlotsTheTypeAskedFor) {
  GraphBuilder builder;
  builder.node("Use", {"large", "half"}, {"y"}).output("y", kFloat, {1});
  const Model graph = Model::from_proto(builder.model(), {}).value();
  const Checkpoint opened = checkpoint();
  const auto plan =
      make_plan(graph, opened, map_by_name(graph, opened), {.dtype = DType::kBFloat16});
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->tensors.size(), 2U);
  for (const PlannedTensor& tensor : plan->tensors) {
    EXPECT_EQ(tensor.data_type, onnx_data_type(DType::kBFloat16));
    EXPECT_EQ(tensor.cast_to, DType::kBFloat16);
  }
}

}  // namespace
}  // namespace onnx_external
