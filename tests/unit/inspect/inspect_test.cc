#include "inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kSha256OfAbcd =
    "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589";

Result<Inspection> inspect_one(const std::filesystem::path& path,
                               Digests digests = Digests::kNone) {
  const std::array paths{path};
  return inspect(paths, {.digests = digests, .progress = {}});
}

TEST(Inspect, ListsACheckpointWithPlacesTiesAndDigests) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{
      {.name = "a", .dtype = DType::kUInt8, .shape = {2, 2}, .bytes = "abcd"},
      {.name = "tied", .dtype = DType::kUInt8, .shape = {2, 2}, .shares = "a"},
      {.name = "t",
       .dtype = DType::kUInt8,
       .shape = {2, 2},
       .bytes = "acbd",
       .strides = std::vector<std::int64_t>{1, 2}},
  };
  const auto path = dir.write("sub/checkpoint.pt", torch_zip(tensors));
  const auto found = inspect_one(path, Digests::kSha256);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->format, "torch-zip");
  EXPECT_EQ(found->bytes, 12U);
  ASSERT_EQ(found->tensors.size(), 3U);
  EXPECT_EQ(found->tensors[0].name, "a");
  EXPECT_EQ(found->tensors[0].dtype, "uint8");
  EXPECT_EQ(found->tensors[0].shape, (Shape{2, 2}));
  EXPECT_EQ(found->tensors[0].file, "checkpoint.pt");
  EXPECT_EQ(read_text(path).substr(found->tensors[0].offset, 4), "abcd");
  EXPECT_FALSE(found->tensors[2].file) << "a transposed view is not a plain range";
  for (const InspectedTensor& tensor : found->tensors) {
    EXPECT_EQ(tensor.sha256, kSha256OfAbcd) << tensor.name;
  }
  EXPECT_THAT(found->tied, ElementsAre(Pair("tied", "a")));
}

TEST(Inspect, ListsAReshapedViewOfATiedTensorAsTheMappingDoes) {
  const TempDir dir;
  for (const bool deflated : {false, true}) {
    const auto path = dir.write(
        "c.pt", torch_zip({{.name = "a", .shape = {2, 3}, .bytes = f32({1, 2, 3, 4, 5, 6})},
                           {.name = "flat", .shape = {6}, .shares = "a"},
                           {.name = "deep", .shape = {3, 1, 2}, .shares = "a"},
                           {.name = "part", .shape = {3}, .shares = "a"}},
                          {.deflated = deflated}));
    const auto found = inspect_one(path);
    ASSERT_THAT(found, IsOk());
    EXPECT_THAT(found->tied, ElementsAre(Pair("flat", "a"), Pair("deep", "a")));
  }
}

TEST(Inspect, ListsAModelWithPlacesProblemsAndOpenSlots) {
  WrittenModel model;
  model.files().write("initializers/w", "..abcd");
  model.graph.input("x", kFloat, {kAnySize, 1}).input("open", kFloat, {1, 3});
  model.graph.initializer("k", kFloat, {1}, "abcd");
  model.graph.external("w", kFloat, {1}, {{"location", "initializers/w"}, {"offset", "2"}});
  model.graph.node("MatMul", {"x", "open"}, {"y"}).output("y", kFloat, {kAnySize, 3});
  const auto found = inspect_one(model.write(), Digests::kSha256);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->format, kModelFormat);
  ASSERT_EQ(found->tensors.size(), 2U);
  EXPECT_FALSE(found->tensors[0].file);
  EXPECT_EQ(found->tensors[0].sha256, kSha256OfAbcd);
  EXPECT_EQ(found->tensors[1].file, "initializers/w");
  EXPECT_EQ(found->tensors[1].offset, 2U);
  EXPECT_EQ(found->tensors[1].sha256, kSha256OfAbcd);
  ASSERT_EQ(found->open_slots.size(), 1U);
  EXPECT_EQ(found->open_slots[0].name, "open");
}

TEST(Inspect, ShowsAModelWithBadEntriesAndSaysWhatIsBad) {
  WrittenModel model;
  model.graph.external("w", kFloat, {1}, {{"location", "../w"}});
  model.graph.initializer("short", kFloat, {2}, "abcd");
  const auto found = inspect_one(model.write(), Digests::kSha256);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->tensors.size(), 2U);
  EXPECT_THAT(found->tensors[0].problem, HasSubstr(".."));
  EXPECT_FALSE(found->tensors[0].file);
  EXPECT_THAT(found->tensors[1].problem, HasSubstr("contains 4 bytes"));
  EXPECT_THAT(found->tensors[1].sha256, IsEmpty());
}

TEST(Inspect, DistinguishesModelsFromCheckpointsByContent) {
  const TempDir dir;
  const auto looks = [&](const std::string& bytes) {
    const auto answer = looks_like_model(dir.write("file", bytes));
    EXPECT_THAT(answer, IsOk());
    return answer.value_or(false);
  };
  EXPECT_TRUE(looks(GraphBuilder().bytes()));
  EXPECT_FALSE(looks(""));
  EXPECT_FALSE(looks("PK\x03\x04 a zip archive"));
  EXPECT_FALSE(looks("\x80\x02}q\x01. a pickle"));
  EXPECT_FALSE(looks("{\"weight_map\": {}}"));
  EXPECT_FALSE(looks(std::string("\x08\0\0\0\0\0\0\0{}      ", 16))) << "safetensors";
}

TEST(Inspect, FailsWithTheNameOfAFileThatIsNeither) {
  const TempDir dir;
  EXPECT_THAT(inspect_one(dir.path() / "absent"), FailsWith(ErrorCode::kNotFound, "absent"));
  const auto text = inspect_one(dir.write("notes.txt", "hello"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("notes.txt"));
}

TEST(Inspect, SeesASafetensorsFileBehindLeadingBlanks) {
  const TempDir dir;
  std::string header = " \n\t {\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  header.resize(0x108, ' ');  // the length's first byte is then a tag of ModelProto
  std::string file(8, '\0');
  file[0] = 0x08;
  file[1] = 0x01;
  const auto found = inspect_one(dir.write("a.safetensors", file + header + "abcd"));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->format, "safetensors");
}

TEST(Inspect, GivesNoDigestsOfARecordWhoseCrcIsWrong) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{
      {.name = "a", .dtype = DType::kUInt8, .shape = {8}, .bytes = "abcdefgh"}};
  std::string zip = torch_zip(tensors);
  zip[zip.find("abcdefgh")] = 'A';
  const auto path = dir.write("damaged.pt", zip);
  EXPECT_THAT(inspect_one(path), IsOk());
  EXPECT_THAT(inspect_one(path, Digests::kSha256), FailsWith(ErrorCode::kCorrupt, "damaged.pt"));
}

}  // namespace
}  // namespace onnx_external
