// How the parts of quantized matrices are listed and compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "inspect/difference.h"
#include "inspect/inspect.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

class QuantizedList : public testing::Test {
 protected:
  // x @ layer -> @ head, and a bias.
  Result<SaveReport> save(const fs::path& out, const std::string& scheme = "int4/32") {
    GraphBuilder builder;
    builder.input("x", kFloat, {2, 64});
    for (const TestTensor& tensor : tensors_) {
      builder.initializer(tensor.name, kFloat, tensor.shape, "");
    }
    builder.node("MatMul", {"x", "layer"}, {"y"}).node("Add", {"y", "bias"}, {"z"});
    builder.node("Relu", {"z"}, {"r"}).node("MatMul", {"r", "head"}, {"logits"});
    builder.output("logits", kFloat, {2, 32});
    SaveOptions options;
    options.write = fast(Overwrite::kAllow);
    options.plan.layout = Layout::kSingle;
    options.plan.quantize.emplace().scheme = parse_scheme(scheme).value();
    return save_model_with_external_data({.folder = out}, open_one(file_),
                                         Model::from_proto(builder.model(), {}).value(), options);
  }
  static std::vector<std::string> forms_of(const Inspection& inspection) {
    std::vector<std::string> forms;
    for (const InspectedTensor& tensor : inspection.tensors) {
      forms.push_back(tensor.name + " " + form_text(tensor));
    }
    return forms;
  }
  // Of the model whose manifest has this text in place of that.
  std::vector<std::string> forms_after(const std::string& text, const std::string& other) {
    const fs::path manifest = out_ / "model.manifest.json";
    const std::string before = read_text(manifest);
    std::string json = before;
    json.replace(json.find(text), text.size(), other);
    dir_.write("out/model.manifest.json", json);
    const auto found = inspect(std::array{out_ / "model.onnx"});
    dir_.write("out/model.manifest.json", before);
    return found ? forms_of(*found) : std::vector<std::string>{found.error().message};
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
  std::vector<TestTensor> tensors_ = {
      {.name = "layer", .shape = {64, 96}, .bytes = std::string(24'576, '\1')},
      {.name = "bias", .shape = {96}, .bytes = std::string(384, '\1')},
      {.name = "head", .shape = {96, 32}, .bytes = std::string(12'288, '\1')},
  };
  fs::path file_ = dir_.write("c.pt", torch_zip(tensors_));
};

TEST_F(QuantizedList, ShowsAMatrixInsteadOfItsParts) {
  ASSERT_THAT(save(out_), IsOk());
  const auto found =
      inspect(std::array{out_ / "model.onnx"}, {.digests = Digests::kSha256, .progress = {}});
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(forms_of(*found),
              testing::UnorderedElementsAre("layer int4 [96, 64], blocks of 32, zero points",
                                            "head int8 [32, 96], blocks of 32, symmetric",
                                            "bias float32 [96]"));
  std::uint64_t bytes = 0;
  for (const InspectedTensor& tensor : found->tensors) {
    bytes += tensor.nbytes;
    EXPECT_EQ(tensor.sha256.size(), 64U);
    if (tensor.name == "layer") {
      EXPECT_EQ(tensor.key, "layer");
      EXPECT_EQ(tensor.nbytes, 96U * 32 + 96 * 2 * 4 + 96);
      EXPECT_EQ(tensor.parts.size(), 3U);
    }
  }
  EXPECT_EQ(found->bytes, bytes);
}

TEST_F(QuantizedList, ShowsThePartsWithoutAManifestThatIsRight) {
  ASSERT_THAT(save(out_), IsOk());
  const auto layer_is_split = testing::Contains(testing::StartsWith("layer.codes uint8"));
  for (const auto& [text, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("crc32")", R"("crc33")"},                   // it cannot be read
           {R"("bits": 4)", R"("bits": 8)"},               // of one part
           {R"("block": 32)", R"("block": 64)"},           // of one part
           {R"("part": "codes")", R"("part": "scales")"},  // twice, and no codes
           {R"("rows": 96)", R"("rows": 95)"},
           {R"("slot": "layer.codes")", R"("slot": "layer.code")"},
           {R"("slot": "layer.codes")", R"("slot": "layer.scales")"},
           {R"("rows": 96)", R"("rows": 9223372036854775807)"},
       }) {
    EXPECT_THAT(forms_after(text, other), layer_is_split) << text;
  }
  fs::remove(out_ / "model.manifest.json");
  EXPECT_THAT(forms_of(inspect(std::array{out_ / "model.onnx"}).value()), layer_is_split);
}

TEST_F(QuantizedList, ComparesMatricesByTheirSchemesAndTheirBytes) {
  const fs::path other = dir_.path() / "other";
  ASSERT_THAT(save(out_), IsOk());
  ASSERT_THAT(save(other), IsOk());
  const std::array a{out_ / "model.onnx"};
  const std::array b{other / "model.onnx"};
  EXPECT_TRUE(find_difference(a, b, {}).value().none());

  std::string data = read_text(other / "model.data");
  data[70] = static_cast<char>(data[70] ^ 1);
  dir_.write("other/model.data", data);
  EXPECT_EQ(find_difference(a, b, {}).value().bytes.size(), 1U);

  ASSERT_THAT(save(other, "int4/16"), IsOk());
  EXPECT_EQ(find_difference(a, b, {}).value().forms.size(), 2U);

  const auto beside = find_difference(std::array{file_}, a, {}).value();
  EXPECT_EQ(beside.forms.size(), 2U);
  EXPECT_EQ(beside.equal, 1U);
  EXPECT_TRUE(beside.only_a.empty() && beside.only_b.empty());
}

}  // namespace
}  // namespace onnx_external
