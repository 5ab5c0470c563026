// Files that torch 2.13 wrote (fixtures/modern): every tensor has torch's type, shape and bytes,
// and what is refused is refused by name.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/digest.h"
#include "base/json.h"
#include "support/open_bytes.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// "float32 [2, 3] crc", by name.
using Tensors = std::map<std::string, std::string>;

std::string line_of(std::string_view dtype, const std::string& shape, std::uint64_t crc) {
  return std::string(dtype) + " " + shape + " " + std::to_string(crc);
}

Tensors tensors_of(const Json& expected) {
  Tensors all;
  for (const auto& [name, facts] : *expected.object()) {
    Shape shape;
    for (const Json& size : *facts.find("shape")->array()) {
      shape.push_back(static_cast<std::int64_t>(*size.uint()));
    }
    all[name] =
        line_of(*facts.find("dtype")->string(), shape_text(shape), *facts.find("crc32")->uint());
  }
  return all;
}

Tensors tensors_of(const Checkpoint& checkpoint) {
  Tensors all;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorView& tensor = checkpoint.tensors()[i];
    const std::string bytes = read_all(checkpoint, i);
    Crc32 crc;
    crc.update(std::as_bytes(std::span(bytes)));
    all[tensor.name] = line_of(torch_name(tensor.dtype), shape_text(tensor.shape), crc.value());
  }
  return all;
}

class ModernFile : public ::testing::TestWithParam<std::string> {
 protected:
  static fs::path folder() { return fs::path(ONNX_EXTERNAL_FIXTURES) / "modern"; }
  static Json all_expected() { return *parse_json(read_text(folder() / "expected.json")); }

  static Result<Checkpoint> open(const Json& expected, Selection selection,
                                 const std::string& key) {
    const JsonArray& options = *expected.find("options")->array();
    const std::vector<fs::path> paths{folder() / GetParam()};
    return open_checkpoint(paths,
                           {.selection = selection, .key = key, .densify = !options.empty()});
  }
};

TEST_P(ModernFile, HoldsTheTensorsThatTorchWrote) {
  const Json document = all_expected();
  const Json& expected = *document.find(GetParam());
  const auto listed = open(expected, Selection::kEverything, "");
  ASSERT_THAT(listed, IsOk());
  EXPECT_EQ(tensors_of(*listed), tensors_of(*expected.find("tensors")));
}

TEST_P(ModernFile, RefusesByNameWhatIsNotRead) {
  const Json document = all_expected();
  const Json& expected = *document.find(GetParam());
  const JsonObject& refused = *expected.find("refused")->object();
  const auto listed = open(expected, Selection::kEverything, "");
  ASSERT_THAT(listed, IsOk());
  EXPECT_EQ(listed->refused_tensors().size(), refused.size());
  for (const auto& refusal : refused) {
    const auto& path = refusal.first;
    const auto& all = listed->refused_tensors();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const RefusedTensor& tensor) { return tensor.path == path; });
    ASSERT_NE(found, all.end()) << path;
    EXPECT_THAT(found->reason, ::testing::HasSubstr(*refusal.second.string()));
  }
  if (!refused.empty()) {
    EXPECT_THAT(open(expected, Selection::kStateDict, ""), FailsWith(ErrorCode::kUnsupported, "'"));
  }
}

std::vector<std::string> file_names() {
  const auto document =
      parse_json(read_text(fs::path(ONNX_EXTERNAL_FIXTURES) / "modern" / "expected.json"));
  std::vector<std::string> names;
  for (const auto& [name, facts] : *document->object()) {
    names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Torch2_13, ModernFile, ::testing::ValuesIn(file_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(ModernFiles, ADistributedCheckpointHasTheNestedDictsThatWereSaved) {
  const std::vector<fs::path> paths{fs::path(ONNX_EXTERNAL_FIXTURES) / "modern" / "dcp"};
  EXPECT_THAT(names(open_checkpoint(paths, {.key = "model"})),
              ::testing::UnorderedElementsAre("rows", "columns", "copied", "plain"));
  EXPECT_THAT(names(open_checkpoint(paths, {.key = "optimizer.state.0"})),
              ::testing::ElementsAre("step"));
}

TEST(ModernFiles, AWholeModuleIsItsStateDict) {
  const std::vector<fs::path> paths{fs::path(ONNX_EXTERNAL_FIXTURES) / "modern" / "module.pt"};
  EXPECT_THAT(names(open_checkpoint(paths)),
              ::testing::UnorderedElementsAre("weight", "tied", "low", "mean", "layers.0.weight",
                                              "layers.0.bias", "layers.1.0", "layers.1.1"));
}

}  // namespace
}  // namespace onnx_external
