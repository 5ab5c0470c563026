// What verify_model finds by the manifest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> findings_in(const std::filesystem::path& path) {
  const auto report = verify_model(path);
  EXPECT_THAT(report, IsOk());
  return report ? codes(*report) : std::vector<std::string>();
}

TEST(VerifyManifest, AcceptsWhatItDescribes) {
  WrittenModel model;
  model.add("a", pattern_bytes(40)).add("b", pattern_bytes(8, 2));
  const auto report = verify_model(model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_TRUE(report->used_manifest);
}

TEST(VerifyManifest, FindsAFlippedBitInAnyPieceOfATensor) {
  constexpr std::size_t kThreePieces = 70'000'000;
  WrittenModel model;
  model.add("small", pattern_bytes(4)).add("large", pattern_bytes(kThreePieces));
  const auto path = model.write_with_manifest();
  EXPECT_THAT(findings_in(path), IsEmpty());
  for (const std::size_t byte : {std::size_t{0}, std::size_t{40'000'000}, kThreePieces - 1}) {
    model.flip("large", byte);
    EXPECT_THAT(findings_in(path), ElementsAre("crc-differs large")) << byte;
    model.flip("large", byte);
  }
  model.flip("small", 3);
  EXPECT_THAT(findings_in(path), ElementsAre("crc-differs small"));
}

TEST(VerifyManifest, FindsSwappedFiles) {
  WrittenModel model;
  model.add("a", pattern_bytes(8, 1)).add("b", pattern_bytes(8, 2));
  const auto path = model.write_with_manifest();
  model.files().write("initializers/a", pattern_bytes(8, 2));
  model.files().write("initializers/b", pattern_bytes(8, 1));
  EXPECT_THAT(findings_in(path), ElementsAre("crc-differs a", "crc-differs b"));
}

TEST(VerifyManifest, FindsAModelThatWasChanged) {
  WrittenModel model;
  model.add("a", pattern_bytes(8));
  const auto path = model.write_with_manifest();
  model.graph.model().set_producer_name("someone else");
  model.files().write("model.onnx", model.graph.bytes());
  EXPECT_THAT(findings_in(path), ElementsAre("model-changed"));
}

TEST(VerifyManifest, IsAFindingWhenItIsDamaged) {
  WrittenModel model;
  model.add("a", pattern_bytes(8));
  const auto path = model.write_with_manifest();
  for (const std::string text : {"", "{", "{\"format\": \"something else\"}", "[]"}) {
    model.files().write("initializers/manifest.json", text);
    const auto report = verify_model(path);
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(codes(*report), ElementsAre("manifest")) << text;
    EXPECT_EQ(report->findings[0].file, "initializers/manifest.json");
    EXPECT_FALSE(report->used_manifest);
  }
}

TEST(VerifyManifest, IsAFindingWhenItIsALink) {
  WrittenModel model;
  model.add("a", pattern_bytes(8));
  const auto path = model.write_with_manifest();
  std::filesystem::rename(model.file("manifest.json"), model.files().path() / "elsewhere.json");
  std::filesystem::create_symlink("../elsewhere.json", model.file("manifest.json"));
  EXPECT_THAT(findings_in(path), ElementsAre("manifest"));
}

TEST(VerifyManifest, MustHaveTheModelsTensorsAndNoOthers) {
  WrittenModel model;
  model.add("a", pattern_bytes(8)).add("b", pattern_bytes(8)).add("c", pattern_bytes(8));
  model.manifest.tensors[0].slot = "x";
  model.manifest.tensors.push_back(model.manifest.tensors[2]);
  EXPECT_THAT(findings_in(model.write_with_manifest()),
              ElementsAre("manifest a", "manifest x", "manifest c"));
}

TEST(VerifyManifest, MustHaveTheModelsRangesAndTypes) {
  WrittenModel model;
  for (const char* name : {"file", "offset", "length", "type", "dims", "inline"}) {
    model.add(name, pattern_bytes(8));
  }
  auto& records = model.manifest.tensors;
  records[0].file = "other";
  records[1].offset = 4;
  records[2].length = 4;
  records[3].data_type = onnx::TensorProto::INT32;
  records[4].dims = {1, 2};
  records[5].file = "";
  EXPECT_THAT(findings_in(model.write_with_manifest()),
              ElementsAre("manifest file", "manifest offset", "manifest length", "manifest type",
                          "manifest dims", "manifest inline"));
}

TEST(VerifyManifest, CoversTensorsThatAreInlineInTheModel) {
  WrittenModel model;
  model.add("a", pattern_bytes(8));
  model.graph.initializer("good", kFloat, {1}, "abcd");
  model.graph.initializer("changed", kFloat, {1}, "abcd");
  model.graph.initializer("short", kFloat, {2}, "abcd");
  model.graph.initializer("not recorded", kFloat, {1}, "abcd");
  for (const char* name : {"good", "changed", "short"}) {
    ManifestTensor record;
    record.slot = name;
    record.length = 4;
    record.crc32 = crc_of("abcd") ^ (record.slot == "changed" ? 1U : 0U);
    record.data_type = kFloat;
    record.dims = {record.slot == "short" ? 2 : 1};
    model.manifest.tensors.push_back(record);
  }
  EXPECT_THAT(findings_in(model.write_with_manifest()),
              ElementsAre("crc-differs changed", "bad-entry short"));
}

TEST(VerifyManifest, IsNotLookedForBesideTheModel) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(8));
  model.files().write("manifest.json", "someone else's");
  model.graph.external("w", kFloat, {2}, {{"location", "w.bin"}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_FALSE(report->used_manifest);
}

}  // namespace
}  // namespace onnx_external
