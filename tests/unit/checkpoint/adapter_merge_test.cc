#include <gmock/gmock.h>

#include <cmath>

#include "onnx_external/checkpoint.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kPlain = R"({"peft_type": "LORA", "lora_alpha": 4})";
const std::string kModule = "base_model.model.fc.";

std::vector<float> values_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto& tensors = checkpoint.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) {
      std::vector<float> values(element_count(tensors[i].shape).value());
      EXPECT_THAT(checkpoint.read(i, 0, std::as_writable_bytes(std::span(values))), IsOk());
      return values;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

class Adapter : public ::testing::Test {
 protected:
  // W = [[1, 2, 3], [4, 5, 6]] and, of rank 2, A = [[1, 0, 1], [0, 1, 0]] and B = [[1, 2], [3, 4]].
  void SetUp() override {
    dir_.write("base/w.pt",
               torch_zip({{.name = "fc.weight", .shape = {2, 3}, .bytes = f32({1, 2, 3, 4, 5, 6})},
                          {.name = "fc.bias", .shape = {2}, .bytes = f32({7, 8})}}));
    put_adapter(kPlain, matrices());
  }

  [[nodiscard]] static std::vector<TestTensor> matrices() {
    return {{.name = kModule + "lora_A.weight", .shape = {2, 3}, .bytes = f32({1, 0, 1, 0, 1, 0})},
            {.name = kModule + "lora_B.weight", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})}};
  }

  void put_adapter(const std::string& config, const std::vector<TestTensor>& tensors) {
    dir_.write("adapter/adapter_config.json", config);
    dir_.write("adapter/adapter_model.bin", torch_zip(tensors));
  }

  [[nodiscard]] Result<Checkpoint> merged(const char* adapter = "adapter") const {
    return open_checkpoint(std::vector<fs::path>{dir_.path() / "base", dir_.path() / adapter});
  }

  TempDir dir_;
};

TEST_F(Adapter, IsMergedIntoTheBaseBeforeIt) {
  for (const char* path : {"adapter", "adapter/adapter_model.bin"}) {
    const auto checkpoint = merged(path);
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_EQ(checkpoint->tensors().size(), 2U);
    // The scale is alpha / rank = 2.
    EXPECT_THAT(values_of(*checkpoint, "fc.weight"), ElementsAre(3, 6, 5, 10, 13, 12));
    EXPECT_THAT(values_of(*checkpoint, "fc.bias"), ElementsAre(7, 8));
    EXPECT_THAT(checkpoint->notes(), ElementsAre(HasSubstr("an adapter, merged into 1 weights")));
  }
}

TEST_F(Adapter, HasTheSameBytesInPieces) {
  const auto checkpoint = merged();
  ASSERT_THAT(checkpoint, IsOk());
  std::string whole(24, '\0');
  ASSERT_THAT(checkpoint->read(0, 0, std::as_writable_bytes(std::span(whole))), IsOk());
  for (std::size_t first = 0; first < whole.size(); ++first) {
    for (std::size_t size = 1; first + size <= whole.size(); ++size) {
      std::string piece(size, '\0');
      ASSERT_THAT(checkpoint->read(0, first, std::as_writable_bytes(std::span(piece))), IsOk());
      ASSERT_EQ(piece, whole.substr(first, size));
    }
  }
}

TEST_F(Adapter, TakesItsScaleFromItsSettings) {
  const std::vector<std::pair<const char*, float>> rows{
      {R"({"peft_type": "LORA"})", 4},
      {R"({"peft_type": "LORA", "lora_alpha": 4, "alpha_pattern": {"fc": 8}})", 4},
      {R"({"peft_type": "LORA", "lora_alpha": 4, "alpha_pattern": {"c": 8}})", 2},
      {R"({"peft_type": "LORA", "lora_alpha": 4, "use_rslora": true})", 4 / std::sqrt(2.0F)}};
  for (const auto& [config, scale] : rows) {
    put_adapter(config, matrices());
    EXPECT_FLOAT_EQ(values_of(*merged(), "fc.weight")[0], 1 + scale) << config;
  }
}

TEST_F(Adapter, OfTransposedWeightsIsAddedTransposed) {
  dir_.write("base/w.pt",
             torch_zip({{.name = "fc.weight", .shape = {3, 2}, .bytes = f32({1, 2, 3, 4, 5, 6})}}));
  EXPECT_THAT(merged(), FailsWith(ErrorCode::kMismatch, "the adapter belongs to another model"));
  put_adapter(R"({"peft_type": "LORA", "lora_alpha": 4, "fan_in_fan_out": true})", matrices());
  EXPECT_THAT(values_of(*merged(), "fc.weight"), ElementsAre(3, 8, 7, 12, 7, 12));
  auto embedding = matrices();
  embedding[0].name = kModule + "lora_embedding_A";
  embedding[1].name = kModule + "lora_embedding_B";
  put_adapter(kPlain, embedding);
  EXPECT_THAT(values_of(*merged(), "fc.weight"), ElementsAre(3, 8, 7, 12, 7, 12));
}

TEST_F(Adapter, ReplacesWhatItSavedWhole) {
  auto tensors = matrices();
  tensors.push_back({.name = kModule + "modules_to_save.bias", .shape = {2}, .bytes = f32({1, 1})});
  put_adapter(kPlain, tensors);
  EXPECT_THAT(values_of(*merged(), "fc.bias"), ElementsAre(1, 1));
  tensors.back().shape = {1};
  tensors.back().bytes = f32({1});
  put_adapter(kPlain, tensors);
  EXPECT_THAT(merged(), FailsWith(ErrorCode::kMismatch, "in its base is [2]"));
}

TEST_F(Adapter, OfAnotherKindIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> rows{
      {R"({"peft_type": "IA3"})", "an adapter of the type 'IA3', which onnx-external cannot merge"},
      {R"({"peft_type": "LORA", "use_dora": true})", "use_dora is set"},
      {R"({"peft_type": "LORA", "bias": "all"})", "bias is 'all'"},
      {R"({"peft_type": "LORA", "lora_alpha": "x"})", "lora_alpha of 'fc' is not a number"},
      {R"([])", "is not an object"}};
  for (const auto& [config, words] : rows) {
    put_adapter(config, matrices());
    const auto refused = merged();
    ASSERT_FALSE(refused.has_value()) << config;
    EXPECT_THAT(refused.error().message, HasSubstr(words));
  }
}

TEST_F(Adapter, ThatDoesNotFitIsRefused) {
  auto other = matrices();
  other[0].name = "base_model.model.other.lora_A.weight";
  other[1].name = "base_model.model.other.lora_B.weight";
  put_adapter(kPlain, other);
  EXPECT_THAT(merged(), FailsWith(ErrorCode::kNotFound, "it changes 'other.weight'"));
  other.pop_back();
  put_adapter(kPlain, other);
  EXPECT_THAT(merged(), FailsWith(ErrorCode::kCorrupt, "has only one of its two matrices"));
  other[0].name = kModule + "lora_magnitude_vector";
  put_adapter(kPlain, other);
  EXPECT_THAT(merged(), FailsWith(ErrorCode::kUnsupported, "is not a matrix of a plain LoRA"));
}

TEST_F(Adapter, AloneIsReadUnchanged) {
  const auto checkpoint = open_checkpoint(std::vector<fs::path>{dir_.path() / "adapter"});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].name, kModule + "lora_A.weight");
}

}  // namespace
}  // namespace onnx_external
