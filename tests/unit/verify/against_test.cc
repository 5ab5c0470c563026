// What verify_model_against finds, and what a model is expected to hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "onnx_external/verify.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A written model and a checkpoint, to be made differ.
class Pair {
 public:
  WrittenModel model;
  std::vector<TestTensor> tensors;

  Pair& add(const std::string& name, const std::string& bytes) {
    model.add(name, bytes);
    tensors.push_back(
        {.name = name, .shape = {static_cast<std::int64_t>(bytes.size() / 4)}, .bytes = bytes});
    expected.push_back({name, 0, tensors.size() - 1});
    return *this;
  }

  Result<Checkpoint> checkpoint(const TorchZipOptions& options = {}) const {
    const std::array paths{files_.write("checkpoint.pt", torch_zip(tensors, options))};
    return open_checkpoint(paths);
  }

  Result<VerifyReport> verify(const std::filesystem::path& path, const VerifyOptions& options = {},
                              const TorchZipOptions& zip = {}) const {
    auto opened = checkpoint(zip);
    if (!opened) {
      return fail(std::move(opened).error());
    }
    return verify_model_against(path, *opened, expected, options);
  }

  std::vector<ExpectedTensor> expected;

 private:
  TempDir files_;
};

TEST(VerifyAgainst, AcceptsEqualBytes) {
  Pair pair;
  pair.add("a", pattern_bytes(400)).add("b", pattern_bytes(8, 2));
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_EQ(report->bytes, 408U);
}

TEST(VerifyAgainst, NamesTheFirstDifferingByte) {
  Pair pair;
  pair.add("a", pattern_bytes(400)).add("b", pattern_bytes(8, 2));
  const auto path = pair.model.write();
  pair.model.files().write("initializers/a", std::string(400, '\0'));
  pair.model.flip("b", 5);
  const auto report = pair.verify(path);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bytes-differ a", "bytes-differ b"));
  EXPECT_THAT(report->findings[1].message,
              HasSubstr("byte 5 of the tensor, byte 5 of the file, is 0x"));
  EXPECT_THAT(report->findings[1].message, HasSubstr("'b' has 0x"));
}

TEST(VerifyAgainst, NamesTheFirstDifferingByteOfALargeTensorForAnyNumberOfThreads) {
  constexpr std::size_t kThreePieces = 70'000'000;
  Pair pair;
  pair.add("large", pattern_bytes(kThreePieces));
  const auto path = pair.model.write();
  pair.model.flip("large", 69'999'999);
  pair.model.flip("large", 40'000'001);
  for (const int threads : {1, 3}) {
    const auto report = pair.verify(path, {.threads = threads, .progress = {}});
    ASSERT_THAT(report, IsOk());
    ASSERT_THAT(codes(*report), ElementsAre("bytes-differ large"));
    EXPECT_THAT(report->findings[0].message, HasSubstr("byte 40000001 of the tensor"));
  }
}

TEST(VerifyAgainst, NamesTheByteOfTheTensorAndThatOfTheFile) {
  Pair pair;
  pair.add("a", pattern_bytes(400));
  pair.model.files().write("all.data", pattern_bytes(64) + std::string(8, '\0'));
  pair.model.graph.external("b", kFloat, {2},
                            {{"location", "all.data"}, {"offset", "64"}, {"length", "8"}});
  pair.tensors.push_back({.name = "b", .shape = {2}, .bytes = std::string("\0\0\0\0\0\1\0\0", 8)});
  pair.expected.push_back({"b", 0, 1});
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  ASSERT_THAT(codes(*report), ElementsAre("bytes-differ b"));
  EXPECT_EQ(
      report->findings[0].message,
      "byte 5 of the tensor, byte 69 of the file, is 0x00, but the checkpoint's 'b' has 0x01");
}

TEST(VerifyByRecordedCrc, AcceptsEqualBytesAndNamesTheFirstThatDiffers) {
  Pair pair;
  pair.add("a", pattern_bytes(400)).add("b", pattern_bytes(8, 2));
  const auto path = pair.model.write();
  const VerifyOptions options{.compare = Compare::kRecordedCrc, .progress = {}};
  const auto equal = pair.verify(path, options);
  ASSERT_THAT(equal, IsOk());
  EXPECT_THAT(codes(*equal), IsEmpty());
  pair.model.flip("b", 5);
  const auto report = pair.verify(path, options);
  ASSERT_THAT(report, IsOk());
  ASSERT_THAT(codes(*report), ElementsAre("bytes-differ b"));
  EXPECT_THAT(report->findings[0].message,
              HasSubstr("byte 5 of the tensor, byte 5 of the file, is 0x"));
}

TEST(VerifyByRecordedCrc, SaysWhenItIsTheCheckpointThatIsDamaged) {
  Pair pair;
  pair.add("a", pattern_bytes(400));
  const auto path = pair.model.write();
  std::string zip = torch_zip(pair.tensors, {});
  const std::size_t place = zip.find(pattern_bytes(400));
  ASSERT_NE(place, std::string::npos);
  zip[place + 7] = static_cast<char>(zip[place + 7] ^ 1);
  pair.model.flip("a", 7);  // as if it had been copied: the bytes agree, the record's CRC does not
  const TempDir files;
  const std::array paths{files.write("damaged.pt", zip)};
  const auto checkpoint = open_checkpoint(paths);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(verify_model_against(path, *checkpoint, pair.expected,
                                   {.compare = Compare::kRecordedCrc, .progress = {}}),
              FailsWith(ErrorCode::kCorrupt, "is damaged (CRC-32 differs)"));
}

TEST(VerifyAgainst, ComparesTensorsThatAreNotAPlainRange) {
  for (const std::string form : {"transposed", "deflated", "big"}) {
    Pair pair;
    const std::string rows = bytes_of<std::uint32_t>({1, 2, 3, 4, 5, 6});
    const std::string columns = bytes_of<std::uint32_t>({1, 3, 5, 2, 4, 6});
    std::string swapped = rows;
    for (std::size_t i = 0; i < swapped.size(); i += 4) {
      std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(i),
                   swapped.begin() + static_cast<std::ptrdiff_t>(i + 4));
    }
    pair.add("w", rows);
    TestTensor& tensor = pair.tensors[0];
    if (form == "transposed") {
      tensor.bytes = columns;
      tensor.shape = {3, 2};
      tensor.strides = {1, 3};
      auto* written = pair.model.graph.model().mutable_graph()->mutable_initializer(0);
      written->set_dims(0, 3);
      written->add_dims(2);
    } else if (form == "big") {
      tensor.bytes = swapped;
    }
    const TorchZipOptions zip{.byte_order = form == "big" ? "big" : "little",
                              .deflated = form == "deflated"};
    const auto path = pair.model.write();
    auto report = pair.verify(path, {}, zip);
    ASSERT_THAT(report, IsOk()) << form;
    EXPECT_THAT(codes(*report), IsEmpty()) << form;
    pair.model.flip("w", 23);
    report = pair.verify(path, {}, zip);
    ASSERT_THAT(report, IsOk()) << form;
    EXPECT_THAT(codes(*report), ElementsAre("bytes-differ w")) << form;
  }
}

TEST(VerifyAgainst, ComparesInlineInitializersRawAndTyped) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  const std::string values = bytes_of<float>({1.0F, 2.0F});
  for (const char* name : {"raw", "typed", "raw wrong", "typed wrong", "short"}) {
    pair.tensors.push_back({.name = name, .shape = {2}, .bytes = values});
    pair.expected.push_back({name, 0, pair.tensors.size() - 1});
    pair.model.graph.initializer(name, kFloat, {2}, "");
  }
  auto& graph = *pair.model.graph.model().mutable_graph();
  graph.mutable_initializer(1)->set_raw_data(values);
  graph.mutable_initializer(3)->set_raw_data(bytes_of<float>({1.0F, 3.0F}));
  graph.mutable_initializer(5)->set_raw_data("abcd");
  for (const int i : {2, 4}) {
    graph.mutable_initializer(i)->add_float_data(i == 2 ? 1.0F : 4.0F);
    graph.mutable_initializer(i)->add_float_data(2.0F);
  }
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report),
              ElementsAre("bytes-differ raw wrong", "bytes-differ typed wrong", "bad-entry short"));
}

TEST(VerifyAgainst, FindsOtherTypesAndDims) {
  Pair pair;
  pair.add("type", pattern_bytes(8)).add("dims", pattern_bytes(8));
  pair.tensors[0].dtype = DType::kInt32;
  pair.tensors[1].shape = {1, 2};
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("type-differs type", "type-differs dims"));
  EXPECT_EQ(report->findings[0].message, "FLOAT [2], but the checkpoint's 'type' is int32 [2]");
}

TEST(VerifyAgainst, FindsExternalTensorsThatNoKeyFills) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8));
  pair.expected.pop_back();
  pair.model.graph.initializer("inline constant", kFloat, {1}, "abcd");
  auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("not-in-checkpoint b"));

  pair.model.manifest.tensors[1].key.clear();  // it came with the given graph
  pair.model.manifest.tensors[1].rule.clear();
  report = pair.verify(pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
}

TEST(VerifyAgainst, FindsExpectedTensorsThatTheModelLacks) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  pair.expected.push_back({"b", 0, 0});
  pair.expected.push_back({"a", 1, 0});
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("missing-tensor b", "missing-tensor a"));
}

TEST(VerifyAgainst, AlsoChecksTheManifest) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  *pair.model.manifest.tensors[0].crc32 ^= 1U;
  const auto path = pair.model.write_with_manifest();
  auto report = pair.verify(path);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("crc-differs a"));
  pair.model.flip("a", 0);
  report = pair.verify(path);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bytes-differ a", "crc-differs a"));
}

TEST(VerifyAgainst, ComparesARangeThatTensorsShareWithEachExpectation) {
  Pair pair;
  pair.add("a", pattern_bytes(8, 1));
  pair.tensors.push_back({.name = "tied", .shape = {2}, .shares = "a"});
  pair.tensors.push_back({.name = "other", .shape = {2}, .bytes = pattern_bytes(8, 2)});
  for (const char* name : {"tied", "other"}) {
    pair.model.graph.external(name, kFloat, {2}, {{"location", "initializers/a"}});
    pair.expected.push_back({name, 0, name == std::string("tied") ? 1U : 2U});
  }
  const auto report = pair.verify(pair.model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bytes-differ other"));
  EXPECT_EQ(report->bytes, 16U) << "the tied pair is read once";
}

// A package that verifies itself: its manifest must not decide what is compared.
Result<VerifyReport> verify_by_own_expectations(const Pair& pair,
                                                const std::filesystem::path& path) {
  const auto checkpoint = pair.checkpoint();
  if (!checkpoint) {
    return fail(checkpoint.error());
  }
  const auto expected = expected_tensors(path, *checkpoint, {});
  if (!expected) {
    return fail(expected.error());
  }
  return verify_model_against(path, *checkpoint, *expected);
}

TEST(VerifyAgainst, ComparesWhatAForgedManifestCallsCopiedAlong) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8, 2));
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  pair.model.flip("a", 3);
  ManifestTensor& record = pair.model.manifest.tensors[0];
  record.key.clear();
  record.rule.clear();
  record.crc32 = crc_of(read_text(pair.model.file("a")));
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bytes-differ a"));
}

TEST(VerifyAgainst, ReportsAManifestThatNamesAnotherTensorThanTheMapping) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8, 2));
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  pair.model.files().write("initializers/a", pattern_bytes(8, 2));
  pair.model.manifest.tensors[0].key = "b";
  pair.model.manifest.tensors[0].crc32 = crc_of(pattern_bytes(8, 2));
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("manifest a", "bytes-differ a"));
  EXPECT_THAT(report->findings[0].message, HasSubstr("'b', but the mapping gives 'a'"));
}

TEST(VerifyAgainst, AcceptsAManifestThatNamesATensorWithTheSameBytes) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8));
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  pair.model.manifest.tensors[0].key = "b";
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
}

TEST(VerifyAgainst, AcceptsAManifestThatNamesATiedTensor) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  pair.tensors.push_back({.name = "b", .shape = {2}, .shares = "a"});
  pair.model.graph.node("Relu", {"a"}, {"y"}).output("y", kFloat, {2});
  pair.model.manifest.tensors[0].key = "b";
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
}

TEST(VerifyAgainst, ComparesInlineInitializersThatTheManifestLeavesOut) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  pair.tensors.push_back({.name = "b", .shape = {2}, .bytes = pattern_bytes(8, 2)});
  pair.model.graph.initializer("b", kFloat, {2}, pattern_bytes(8, 3));
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bytes-differ b"));
}

TEST(VerifyAgainst, CountsWhatItComparedAndWhatRestsOnTheManifest) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("renamed", pattern_bytes(8, 2)).add("c", pattern_bytes(8, 3));
  pair.tensors[1].name = "other";
  pair.tensors.pop_back();
  pair.model.manifest.tensors[1].key = "other";
  pair.model.manifest.tensors[1].rule = "map";
  pair.model.manifest.options.keep = {"c"};
  pair.model.manifest.tensors[2].key.clear();  // it came with the given graph
  pair.model.manifest.tensors[2].rule.clear();
  pair.model.graph.node("Sum", {"a", "renamed", "c"}, {"y"}).output("y", kFloat, {2});
  const auto report = verify_by_own_expectations(pair, pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_EQ(report->tensors, 3U);
  EXPECT_EQ(report->compared, 2U);
  EXPECT_EQ(report->compared_by_manifest, 1U);
}

TEST(ExpectedTensors, ComeFromTheManifestWhereMappingHasNoAnswer) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8, 2));
  pair.tensors[0].name = "x";
  pair.model.manifest.tensors[0].key = "x";
  pair.model.manifest.tensors[0].rule = pair.model.manifest.tensors[1].rule = "map";
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  for (const bool maps : {true, false}) {
    pair.tensors[1].name = pair.model.manifest.tensors[1].key = maps ? "b" : "z";
    const auto checkpoint = pair.checkpoint();
    ASSERT_THAT(checkpoint, IsOk());
    const auto expected = expected_tensors(pair.model.write_with_manifest(), *checkpoint, {});
    ASSERT_THAT(expected, IsOk());
    ASSERT_EQ(expected->size(), 2U);
    for (const ExpectedTensor& tensor : *expected) {
      const bool is_a = tensor.initializer == "a";
      EXPECT_EQ(tensor.tensor, is_a ? 0U : 1U);
      EXPECT_EQ(tensor.by, is_a || !maps ? ExpectedBy::kManifest : ExpectedBy::kMapping);
    }
  }
}

TEST(ExpectedTensors, AreRefusedForACheckpointThatHasMoreThanTheSaveAskedFor) {
  Pair pair;
  pair.add("layer.a", pattern_bytes(8));
  pair.model.graph.node("Relu", {"layer.a"}, {"y"}).output("y", kFloat, {2});
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), {}), IsOk());
  pair.tensors.push_back({.name = "layer.b", .shape = {2}, .bytes = pattern_bytes(8, 2)});
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), {}),
              FailsWith(ErrorCode::kNotFound, "layer.b"));
  MappingOptions options;
  options.ignore = {"b$"};
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), options),
              IsOk());
  pair.model.manifest.options.ignore = {"b$"};
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), {}), IsOk());
}

TEST(ExpectedTensors, AreRefusedForDataThatTheSaveWasNotAskedToKeep) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("old", pattern_bytes(8, 2));
  pair.tensors.pop_back();
  pair.model.manifest.tensors[1].key.clear();
  pair.model.manifest.tensors[1].rule.clear();
  pair.model.graph.node("Add", {"a", "old"}, {"y"}).output("y", kFloat, {2});
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), {}),
              FailsWith(ErrorCode::kNotFound, "old"));
  pair.model.manifest.options.partial = Partial::kAllow;
  EXPECT_THAT(expected_tensors(pair.model.write_with_manifest(), *pair.checkpoint(), {}), IsOk());
}

TEST(ExpectedTensors, AreMappedAgainWithoutAManifestOrWithAnOption) {
  Pair pair;
  pair.add("a", pattern_bytes(8)).add("b", pattern_bytes(8));
  pair.model.graph.node("Add", {"a", "b"}, {"y"}).output("y", kFloat, {2});
  pair.model.manifest.tensors[0].key = "b";
  const auto checkpoint = pair.checkpoint();
  ASSERT_THAT(checkpoint, IsOk());
  for (const bool with_manifest : {false, true}) {
    MappingOptions options;
    options.prefix = with_manifest ? std::optional<std::string>("") : std::nullopt;
    const auto path = with_manifest ? pair.model.write_with_manifest() : pair.model.write();
    const auto expected = expected_tensors(path, *checkpoint, options);
    ASSERT_THAT(expected, IsOk());
    ASSERT_EQ(expected->size(), 2U);
    for (const ExpectedTensor& tensor : *expected) {
      EXPECT_EQ(tensor.tensor, tensor.initializer == "a" ? 0U : 1U);
    }
  }
}

TEST(ExpectedTensors, AreMappedAgainWhenTheCheckpointIsNotTheManifests) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  pair.model.graph.node("Relu", {"a"}, {"y"}).output("y", kFloat, {2});
  pair.model.manifest.tensors[0].key = "elsewhere";
  const auto checkpoint = pair.checkpoint();
  ASSERT_THAT(checkpoint, IsOk());
  const auto expected = expected_tensors(pair.model.write_with_manifest(), *checkpoint, {});
  ASSERT_THAT(expected, IsOk());
  ASSERT_EQ(expected->size(), 1U);
  EXPECT_EQ((*expected)[0].initializer, "a");
}

TEST(ExpectedTensors, FailWhenNothingMatches) {
  Pair pair;
  pair.add("a", pattern_bytes(8));
  pair.model.graph.node("Relu", {"a"}, {"y"}).output("y", kFloat, {2});
  pair.tensors[0].name = "b";
  const auto checkpoint = pair.checkpoint();
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_FALSE(expected_tensors(pair.model.write(), *checkpoint, {}));
}

// A model whose exporter has stored the equal weights "a", "b" and "c" once, outside or inside.
std::filesystem::path shared_model(Pair& pair, const std::string& bytes, bool outside) {
  if (outside) {
    pair.model.add("a", bytes);
  } else {
    pair.model.graph.initializer("a", kFloat, {static_cast<std::int64_t>(bytes.size() / 4)}, bytes);
  }
  pair.model.graph.node("Identity", {"a"}, {"b"}).node("Identity", {"b"}, {"c"});
  pair.model.graph.node("Use", {"a", "b", "c"}, {"y"}).output("y", kFloat, {4});
  for (const char* name : {"a", "b", "c"}) {
    pair.tensors.push_back(
        {.name = name, .shape = {static_cast<std::int64_t>(bytes.size() / 4)}, .bytes = bytes});
    pair.expected.push_back({name, 0, pair.tensors.size() - 1});
  }
  return pair.model.write();
}

TEST(VerifyAgainst, ComparesEqualWeightsWhereAnExporterHasSharedThem) {
  for (const bool outside : {true, false}) {
    Pair pair;
    const auto path = shared_model(pair, pattern_bytes(4000), outside);
    const auto report = pair.verify(path);
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(codes(*report), IsEmpty());
    EXPECT_EQ(report->tensors, outside ? 1U : 0U);
    EXPECT_EQ(report->compared, outside ? 1U : 0U);
    EXPECT_EQ(report->inline_tensors, outside ? 0U : 1U);
    EXPECT_EQ(report->inline_compared, outside ? 0U : 1U);
    pair.tensors[2].bytes[77] ^= 1;
    EXPECT_THAT(codes(*pair.verify(path)), ElementsAre("bytes-differ c"));
    pair.tensors[1].shape = {10, 100};
    EXPECT_THAT(codes(*pair.verify(path)), ElementsAre("type-differs b", "bytes-differ c"));
  }
}

TEST(VerifyAgainst, CountsWeightsInsideTheModelThatWereNotCompared) {
  Pair pair;
  pair.add("a", pattern_bytes(400));
  pair.model.graph.initializer("kept", kFloat, {4}, pattern_bytes(16));
  const auto report = pair.verify(pair.model.write_with_manifest());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->inline_uncompared, 1U);
}

TEST(VerifyAgainst, ReportsAnOpenSlotOnce) {
  Pair pair;
  pair.add("a", pattern_bytes(400));
  pair.model.graph.node("Use", {"a", "b"}, {"y"}).output("y", kFloat, {1});
  pair.tensors.push_back({.name = "b", .shape = {4}, .bytes = pattern_bytes(16)});
  pair.expected.push_back({"b", 0, 1});
  EXPECT_THAT(codes(*pair.verify(pair.model.write())), ElementsAre("open-slot b"));
}

}  // namespace
}  // namespace onnx_external
