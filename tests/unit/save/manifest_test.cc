#include "save/manifest.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/plan.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

Manifest example_manifest() {
  Manifest manifest;
  manifest.model_file = "model.onnx";
  manifest.model_bytes = 4321;
  manifest.model_crc32 = 0xABC;
  manifest.tensors.push_back({"fc.weight",
                              0,
                              "module.fc.weight",
                              "prefix-removed",
                              "fc.weight",
                              0,
                              24,
                              0xDEADBEEF,
                              1,
                              {2, 3}});
  manifest.tensors.push_back({"n\"\\\n", 2, "n", "exact", "", 0, 8, 7, 7, {}});
  manifest.tensors.push_back({"old",
                              0,
                              "",
                              "",
                              "old",
                              std::numeric_limits<std::uint64_t>::max(),
                              std::numeric_limits<std::uint64_t>::max(),
                              0,
                              1,
                              {std::numeric_limits<std::int64_t>::max(), 0}});
  return manifest;
}

// The example's text with one part replaced.
std::string with(const std::string& part, const std::string& replacement) {
  std::string text = manifest_text(example_manifest());
  const std::size_t place = text.find(part);
  EXPECT_NE(place, std::string::npos) << part;
  return text.replace(place, part.size(), replacement);
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const auto parsed = parse_manifest(manifest_text(example_manifest()));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, example_manifest());
}

TEST(Manifest, HasTheDocumentedText) {
  Manifest manifest = example_manifest();
  manifest.tensors.resize(1);
  EXPECT_EQ(
      manifest_text(manifest),
      "{\n\"format\": \"onnx-external-manifest\",\n\"version\": 3,\n"
      "\"model\": {\"file\": \"model.onnx\", \"bytes\": 4321, \"crc32\": \"00000abc\"},\n"
      "\"tensors\": [\n"
      "{\"slot\": \"fc.weight\", \"key\": \"module.fc.weight\", \"rule\": \"prefix-removed\", "
      "\"file\": \"fc.weight\", \"offset\": 0, \"length\": 24, \"crc32\": \"deadbeef\", "
      "\"dtype\": 1, \"dims\": [2, 3]}\n]\n}\n");
}

TEST(Manifest, IsKnownAsAModelsByItsBeginning) {
  const std::string text = manifest_text(example_manifest());
  EXPECT_EQ(begins_as_manifest_of({example_manifest().model_file, 4321, 0xABC}, text), true);
  EXPECT_EQ(begins_as_manifest_of({example_manifest().model_file, 4321, 0xABD}, text), false);
  EXPECT_EQ(begins_as_manifest_of({example_manifest().model_file, 432, 0xABC}, text), false);
  EXPECT_EQ(begins_as_manifest_of({"other.onnx", 4321, 0xABC}, text), false);
  EXPECT_EQ(begins_as_manifest_of({example_manifest().model_file, 4321, 0xABC}, " " + text),
            std::nullopt);
  EXPECT_EQ(begins_as_manifest_of({example_manifest().model_file, 4321, 0xABC}, ""), std::nullopt);
}

TEST(Manifest, HasRoomInItsHeadForTheLongestName) {
  Manifest manifest = example_manifest();
  manifest.model_file = std::string(255, '\x01');
  const std::string head = manifest_text(manifest).substr(0, kManifestHeadBytes);
  EXPECT_EQ(begins_as_manifest_of({manifest.model_file, 4321, 0xABC}, head), true);
}

TEST(Manifest, HasTheRecipeOfATensor) {
  Manifest manifest = example_manifest();
  manifest.tensors[0].recipe = {RecipeStep::transpose()};
  const std::string text = manifest_text(manifest);
  EXPECT_THAT(text, testing::HasSubstr(
                        "\"rule\": \"prefix-removed\", \"recipe\": [\"transpose\"], \"file\""));
  const auto parsed = parse_manifest(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, HasTheNumbersOfARecipe) {
  Manifest manifest = example_manifest();
  manifest.tensors[0].recipe = {RecipeStep::transpose(), RecipeStep::slice(0, -1, 2)};
  const std::string text = manifest_text(manifest);
  EXPECT_THAT(text, testing::HasSubstr(R"("recipe": ["transpose", {"slice": [0, -1, 2]}])"));
  const auto parsed = parse_manifest(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, RecordsTheOptionsOfTheSave) {
  Manifest manifest = example_manifest();
  manifest.options.unmatched = Unmatched::kSkip;
  manifest.options.partial = Partial::kAllow;
  manifest.options.prefix = "";
  manifest.options.renames = {{"^a\\.", "\\1\"", true}, {"b", "", false}};
  manifest.options.inputs = {"x"};
  manifest.options.keep = {"old \"data\"", "b"};
  manifest.options.ignore = {"^lora_"};
  const std::string text = manifest_text(manifest);
  EXPECT_THAT(text, testing::HasSubstr(R"("options": {"unmatched": "skip", "partial": true, )"
                                       R"("prefix": "", "renames": [["^a\\.", "\\1\"", true], )"));
  const auto parsed = parse_manifest(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, RefusesOptionsOfAnotherKind) {
  for (const char* options :
       {"[]", R"({"unmatched": "strict"})", R"({"unmatched": "error"})", R"({"partial": "yes"})",
        R"({"prefix": 1})", R"({"renames": [["a", "b"]]})", R"({"keep": [1]})",
        R"({"ignore": "a"})"}) {
    const std::string entry = std::string("\"version\": 3,\n\"options\": ") + options;
    EXPECT_THAT(parse_manifest(with("\"version\": 3", entry)),
                FailsWith(ErrorCode::kCorrupt, "options"))
        << options;
  }
}

TEST(Manifest, RefusesAByteOrderMarkAndNulBytes) {
  const std::string text = manifest_text(example_manifest());
  EXPECT_THAT(parse_manifest("\xEF\xBB\xBF" + text),
              FailsWith(ErrorCode::kCorrupt, "byte 1: a byte order mark"));
  EXPECT_THAT(parse_manifest(text + '\0'), FailsWith(ErrorCode::kCorrupt, ": a NUL byte"));
}

TEST(Manifest, MayBeEmptyOfTensors) {
  Manifest manifest = example_manifest();
  manifest.tensors.clear();
  const auto parsed = parse_manifest(manifest_text(manifest));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, IgnoresMembersOfLaterVersions) {
  EXPECT_THAT(parse_manifest(with("\"version\": 3", "\"version\": 3, \"more\": [1]")), IsOk());
}

TEST(Manifest, RefusesAnotherFormatAndVersion) {
  EXPECT_THAT(parse_manifest(with("onnx-external-manifest", "other")),
              FailsWith(ErrorCode::kCorrupt, "not a manifest"));
  EXPECT_THAT(parse_manifest(with("\"version\": 3", "\"version\": 4")),
              FailsWith(ErrorCode::kUnsupported, "manifest version 4 is not known"));
  EXPECT_THAT(parse_manifest(with("\"version\": 3", "\"version\": 2")),
              FailsWith(ErrorCode::kUnsupported, "this version reads 3"));
  EXPECT_THAT(parse_manifest("[]"), FailsWith(ErrorCode::kCorrupt, "not a manifest"));
  EXPECT_THAT(parse_manifest(""), FailsWith(ErrorCode::kCorrupt, ""));
}

TEST(Manifest, RefusesEachLie) {
  const std::vector<std::pair<std::string, std::string>> lies = {
      {"\"file\": \"fc.weight\"", "\"file\": \"../fc.weight\""},
      {"\"file\": \"fc.weight\"", "\"file\": \"/etc/passwd\""},
      {"\"file\": \"fc.weight\"", "\"file\": \"..\""},
      {"\"file\": \"fc.weight\"", "\"file\": \"\""},
      {"\"file\": \"fc.weight\"", "\"file\": 1"},
      {"\"file\": \"model.onnx\"", "\"file\": \"a/b\""},
      {"\"slot\": \"fc.weight\"", "\"slot\": null"},
      {"\"slot\": \"fc.weight\", ", ""},
      {"\"slot\": \"fc.weight\"", "\"slot\": \"fc.weight\", \"recipe\": \"transpose\""},
      {"\"slot\": \"fc.weight\"", "\"slot\": \"fc.weight\", \"recipe\": [\"fold\"]"},
      {"\"slot\": \"fc.weight\"", "\"slot\": \"fc.weight\", \"recipe\": [{\"slice\": [0.5]}]"},
      {"\"slot\": \"fc.weight\"",
       "\"slot\": \"fc.weight\", \"recipe\": [1, 2, 3, 4, 5, 6, 7, 8, 9]"},
      {"\"graph\": 2", "\"graph\": 4294967296"},
      {"\"offset\": 0", "\"offset\": -1"},
      {"\"offset\": 0", "\"offset\": 0.0"},
      {"\"length\": 24", "\"length\": \"24\""},
      {"deadbeef", "deadbee"},
      {"deadbeef", "deadbeeg"},
      {"deadbeef", "0xdeadbe"},
      {"00000abc", "-0000abc"},
      {"\"dtype\": 1", "\"dtype\": 2147483648"},
      {"[2, 3]", "[2, -3]"},
      {"[2, 3]", "[2, 9223372036854775808]"},
      {"[2, 3]", "6"},
      {"\"tensors\": [", "\"tensors\": [1, "},
      {"\"tensors\"", "\"tensor\""},
      {"\"model\": {", "\"models\": {"},
  };
  for (const auto& [part, lie] : lies) {
    EXPECT_THAT(parse_manifest(with(part, lie)), FailsWith(ErrorCode::kCorrupt, "")) << lie;
  }
}

TEST(Manifest, NamesTheTensorThatIsWrong) {
  EXPECT_THAT(parse_manifest(with("\"graph\": 2", "\"graph\": -2")),
              FailsWith(ErrorCode::kCorrupt, "tensor 1: \"graph\""));
}

Manifest linked_example() {
  Manifest manifest = example_manifest();
  manifest.linked = {{"a.pt", 5}, {"weights/b.pt", 1000}};
  manifest.tensors[0].file = "weights/b.pt";
  manifest.tensors[0].crc32.reset();
  return manifest;
}

TEST(Manifest, KeepsLinkedFilesAndCrcsThatNobodyKnows) {
  const auto parsed = parse_manifest(manifest_text(linked_example()));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, linked_example());
  EXPECT_TRUE(parsed->is_linked("weights/b.pt"));
  EXPECT_FALSE(parsed->is_linked("old"));
  EXPECT_FALSE(parsed->is_linked(""));
}

TEST(Manifest, RefusesEachLieAboutLinkedFiles) {
  const std::vector<std::pair<std::string, std::string>> lies = {
      {"\"file\": \"a.pt\"", "\"file\": \"../a.pt\""},
      {"\"file\": \"a.pt\"", "\"file\": \"/a.pt\""},
      {"\"file\": \"a.pt\"", "\"file\": \"\""},
      {"\"file\": \"a.pt\"", "\"file\": \"weights/b.pt\""},  // twice
      {"\"file\": \"a.pt\", ", ""},
      {"\"bytes\": 5", "\"bytes\": -5"},
      {"\"linked\": [", "\"linked\": [7, "},
      {"\"linked\": [", "\"linked\": 7, \"other\": ["},
      // Not listed as linked any more: a path, and without a CRC.
      {"{\"file\": \"weights/b.pt\"", "{\"file\": \"weights/c.pt\""},
      {"\"linked\": [", "\"other\": ["},
  };
  for (const auto& [part, lie] : lies) {
    std::string text = manifest_text(linked_example());
    ASSERT_NE(text.find(part), std::string::npos) << part;
    text.replace(text.find(part), part.size(), lie);
    EXPECT_THAT(parse_manifest(text), FailsWith(ErrorCode::kCorrupt, "")) << lie;
  }
}

TEST(Manifest, ListsTheModelsOfItsSet) {
  Manifest manifest = example_manifest();
  manifest.set = {{"encoder.onnx", 12, 0xabc}, {"model.onnx", 4321, 0xabc}};
  const std::string text = manifest_text(manifest);
  EXPECT_THAT(text, testing::HasSubstr("\"set\": [\n{\"file\": \"encoder.onnx\", \"bytes\": 12, "
                                       "\"crc32\": \"00000abc\"},\n"));
  const auto parsed = parse_manifest(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
}

TEST(Manifest, RefusesEachLieAboutItsSet) {
  Manifest manifest = example_manifest();
  manifest.set = {{"encoder.onnx", 12, 0xabc}};
  const std::vector<std::pair<std::string, std::string>> lies = {
      {"\"file\": \"encoder.onnx\"", "\"file\": \"../encoder.onnx\""},
      {"\"file\": \"encoder.onnx\"", "\"file\": \"a/encoder.onnx\""},
      {"\"file\": \"encoder.onnx\"", "\"file\": \"\""},
      {"\"file\": \"encoder.onnx\", ", ""},
      {"\"bytes\": 12", "\"bytes\": -12"},
      {"\"bytes\": 12, \"crc32\": \"00000abc\"", "\"bytes\": 12, \"crc32\": \"abc\""},
      {"\"set\": [", "\"set\": [7, "},
      {"\"set\": [", "\"set\": 7, \"other\": ["},
  };
  for (const auto& [part, lie] : lies) {
    std::string text = manifest_text(manifest);
    ASSERT_NE(text.find(part), std::string::npos) << part;
    text.replace(text.find(part), part.size(), lie);
    EXPECT_THAT(parse_manifest(text), FailsWith(ErrorCode::kCorrupt, "")) << lie;
  }
  manifest.set.assign(kMaxSetModels + 1, {"encoder.onnx", 12, 0xabc});
  EXPECT_THAT(parse_manifest(manifest_text(manifest)), FailsWith(ErrorCode::kCorrupt, "models"));
}

TEST(Manifest, NeedsTheCrcOfTensorsThatAreNotLinked) {
  EXPECT_THAT(parse_manifest(with("\"crc32\": \"deadbeef\", ", "")),
              FailsWith(ErrorCode::kCorrupt, "\"crc32\" is missing"));
}

}  // namespace
}  // namespace onnx_external
