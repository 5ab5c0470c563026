// What verify_model finds without a manifest and without a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "onnx_external/verify.h"
#include "support/function_default.h"
#include "support/result_matchers.h"
#include "support/written_model.h"
#include "verify/findings.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The findings of a model with the one external tensor "w" of two floats, whose file has 16 bytes.
std::vector<Finding> findings_of(const Entries& entries) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(16));
  model.graph.external("w", kFloat, {2}, entries);
  const auto report = verify_model(model.write());
  EXPECT_THAT(report, IsOk());
  return report ? report->findings : std::vector<Finding>();
}

std::vector<std::string> codes_of(const Entries& entries) {
  VerifyReport report;
  report.findings = findings_of(entries);
  return codes(report);
}

TEST(VerifyStructure, AcceptsAPlainModel) {
  WrittenModel model;
  model.add("a", pattern_bytes(40)).add("b", pattern_bytes(8, 2));
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->tensors, 2U);
  EXPECT_EQ(report->bytes, 48U);
  EXPECT_FALSE(report->used_manifest);
}

TEST(VerifyStructure, AcceptsARangeInsideAFileAndAnAbsentLength) {
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"offset", "8"}, {"length", "8"}}), IsEmpty());
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"offset", "8"}}), IsEmpty());
  EXPECT_THAT(codes_of({{"location", "w.bin"}}), IsEmpty());
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"prepacked_0", "x|0;8;1"}}), IsEmpty());
}

TEST(VerifyStructure, CountsEntriesWithoutALength) {
  WrittenModel model;
  model.add("w", pattern_bytes(8));
  model.files().write("v.bin", pattern_bytes(8));
  model.graph.external("v", kFloat, {2}, {{"location", "v.bin"}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->tensors, 2U);
  EXPECT_EQ(report->without_length, 1U);
}

TEST(VerifyStructure, FailsOnlyWhenThereIsNoModel) {
  const TempDir dir;
  EXPECT_THAT(verify_model(dir.path() / "absent.onnx"),
              FailsWith(ErrorCode::kNotFound, "absent.onnx"));
  EXPECT_THAT(verify_model(dir.write("empty.onnx", "")),
              FailsWith(ErrorCode::kCorrupt, "empty.onnx"));
  EXPECT_THAT(verify_model(dir.write("text.onnx", "no protobuf at all")),
              FailsWith(ErrorCode::kCorrupt, "text.onnx"));
}

TEST(VerifyStructure, FindsEveryBadNumber) {
  for (const std::string key : {"offset", "length"}) {
    for (const std::string value :
         {"+8", "-8", " 8", "8 ", "0x8", "8.0", "eight", "18446744073709551624",
          "9223372036854775808", "99999999999999999999999"}) {
      EXPECT_THAT(codes_of({{"location", "w.bin"}, {key, value}}), ElementsAre("bad-entry w"))
          << key << "=" << value;
    }
  }
}

TEST(VerifyStructure, FindsBadKeys) {
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"packed", "x"}}), ElementsAre("bad-entry w"));
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"location", "v.bin"}}), ElementsAre("bad-entry w"));
  EXPECT_THAT(codes_of({{"offset", "0"}}), ElementsAre("bad-entry w"));
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"offset", ""}}), ElementsAre("bad-entry w"));
  EXPECT_THAT(codes_of({{"location", ""}}), ElementsAre("bad-entry w"));
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"checksum", ""}}), ElementsAre("bad-entry w"));
}

TEST(VerifyStructure, FindsTypesAndDimsThatHaveNoSize) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(16));
  const Entries entries{{"location", "w.bin"}};
  model.graph.external("text", onnx::TensorProto::STRING, {2}, entries);
  model.graph.external("nothing", onnx::TensorProto::UNDEFINED, {2}, entries);
  model.graph.external("negative", kFloat, {-2}, entries);
  model.graph.external("huge", kFloat, {1LL << 40, 1LL << 40}, entries);
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bad-entry text", "bad-entry nothing",
                                          "bad-entry negative", "bad-entry huge"));
}

TEST(VerifyStructure, FindsBadLocationsBeforeAnySystemCall) {
  for (const std::string location :
       {"/etc/passwd", "../w.bin", "a/../w.bin", "./../w.bin", "..", ".", "a//..", "w.bin/",
        "w.bin/.", "C:\\w.bin", "*/_ORT_MEM_ADDR_/*", "a\nb"}) {
    EXPECT_THAT(codes_of({{"location", location}}), ElementsAre("bad-location w")) << location;
  }
  EXPECT_THAT(codes_of({{"location", std::string(5000, 'a')}}), ElementsAre("bad-location w"));
  EXPECT_THAT(codes_of({{"location", std::string("w\0bin", 5)}}), ElementsAre("bad-location w"));
}

TEST(VerifyStructure, FindsMissingFiles) {
  EXPECT_THAT(codes_of({{"location", "absent.bin"}}), ElementsAre("missing-file w"));
  EXPECT_THAT(codes_of({{"location", "no/folder/w.bin"}}), ElementsAre("missing-file w"));
  EXPECT_THAT(codes_of({{"location", "w.bin/below"}}), ElementsAre("missing-file w"));
}

TEST(VerifyStructure, FindsLinksAndOtherKindsOfFiles) {
  WrittenModel model;
  const auto& dir = model.files().path();
  model.files().write("plain", pattern_bytes(8));
  model.files().write("twice", pattern_bytes(8));
  model.files().write("real/below", pattern_bytes(8));
  std::filesystem::create_symlink("plain", dir / "symlink");
  std::filesystem::create_directory_symlink("real", dir / "parent");
  std::filesystem::create_hard_link(dir / "twice", dir / "hardlink");
  std::filesystem::create_directory(dir / "folder");
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const std::string name : {"symlink", "parent/below", "hardlink", "folder", "fifo"}) {
    model.graph.external(name, kFloat, {2}, {{"location", name}});
  }
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report),
              ElementsAre("manifest",  // parent/manifest.json would pass through the link, too
                          "bad-file-kind symlink", "bad-file-kind parent/below",
                          "bad-file-kind folder", "bad-file-kind fifo"));
  ASSERT_EQ(report->remarks.size(), 2U);  // no lengths, and:
  EXPECT_EQ(report->remarks[1].remark, DataRemark::kHardLinks);
  EXPECT_EQ(report->remarks[1].first, "hardlink");
}

TEST(VerifyStructure, FollowsLinksIntoTheHubsCacheOnly) {
  WrittenModel model;
  const auto& dir = model.files().path();
  model.files().write("blobs/abc", pattern_bytes(8));
  for (const std::string folder :
       {"snapshots/rev/", "snapshots/rev/onnx/data/", "elsewhere/rev/"}) {
    const auto depth = std::count(folder.begin(), folder.end(), '/');
    std::string up;
    for (std::ptrdiff_t i = 0; i < depth; ++i) {
      up += "../";
    }
    std::filesystem::create_directories(dir / folder);
    std::filesystem::create_symlink(up + "blobs/abc", dir / (folder + "w"));
    std::filesystem::create_symlink(up + "blobs/../secret", dir / (folder + "out"));
    std::filesystem::create_symlink(up + "../blobs/abc", dir / (folder + "higher"));
    for (const std::string name : {"w", "out", "higher"}) {
      model.graph.external(folder + name, kFloat, {2},
                           {{"location", folder + name}, {"length", "8"}});
    }
  }
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  const auto found = codes(*report);
  EXPECT_THAT(found, testing::Not(testing::Contains("bad-file-kind snapshots/rev/w")));
  EXPECT_THAT(found, testing::Not(testing::Contains("bad-file-kind snapshots/rev/onnx/data/w")));
  for (const std::string name : {"snapshots/rev/out", "snapshots/rev/higher", "elsewhere/rev/w",
                                 "snapshots/rev/onnx/data/out", "elsewhere/rev/out"}) {
    EXPECT_THAT(found, testing::Contains("bad-file-kind " + name));
  }
  ASSERT_EQ(report->remarks.size(), 1U);
  EXPECT_EQ(report->remarks[0].remark, DataRemark::kHubLink);
  EXPECT_EQ(report->remarks[0].tensors, 2U);
}

TEST(VerifyStructure, FindsAFileThatMayNotBeRead) {
  WrittenModel model;
  model.add("w", pattern_bytes(8));
  const auto path = model.write();
  std::filesystem::permissions(model.files().path(), std::filesystem::perms::all);
  std::filesystem::permissions(model.file("w"), std::filesystem::perms::none);
  constexpr uid_t kNobody = 65534;
  const bool is_root = ::geteuid() == 0;
  ASSERT_TRUE(!is_root || ::seteuid(kNobody) == 0);
  const auto report = verify_model(path);
  ASSERT_TRUE(!is_root || ::seteuid(0) == 0);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("unreadable w"));
}

TEST(VerifyStructure, FindsRangesPastTheEndOfTheFile) {
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"offset", "9"}}), ElementsAre("out-of-range w"));
  EXPECT_THAT(codes_of({{"location", "w.bin"}, {"offset", "9223372036854775807"}}),
              ElementsAre("out-of-range w"));
  const auto findings = findings_of({{"location", "w.bin"}, {"offset", "12"}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].file, "w.bin");
  EXPECT_THAT(findings[0].message, HasSubstr("the file has 16"));
}

TEST(VerifyStructure, FindsALengthThatIsNotDimsTimesElementSize) {
  for (const std::string length : {"1", "7", "9", "16", "9223372036854775807"}) {
    EXPECT_THAT(codes_of({{"location", "w.bin"}, {"length", length}}),
                ElementsAre("wrong-length w"))
        << length;
  }
}

TEST(VerifyStructure, RoundsFourBitTypesUpToWholeBytes) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(2));
  constexpr std::int32_t kUint4 = 21;
  model.graph.external("w", kUint4, {3}, {{"location", "w.bin"}, {"length", "2"}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
}

TEST(VerifyStructure, TrustsTheStatedLengthOfAnElementTypeNewerThanItsTable) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(6));
  constexpr std::int32_t kFutureType = 999;
  model.graph.external("w", kFutureType, {3}, {{"location", "w.bin"}, {"length", "6"}});
  model.graph.external("v", kFutureType, {3}, {{"location", "w.bin"}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("bad-entry v"));
}

TEST(VerifyStructure, FindsDataLeftInAnExternalTensor) {
  WrittenModel model;
  model.add("raw", pattern_bytes(8)).add("typed", pattern_bytes(8));
  auto& graph = *model.graph.model().mutable_graph();
  graph.mutable_initializer(0)->set_raw_data("12345678");
  graph.mutable_initializer(1)->add_float_data(1.0F);
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("inline-and-external raw", "inline-and-external typed"));
}

TEST(VerifyStructure, FindsTwinNamesInOneGraphButNotInTwo) {
  WrittenModel model;
  model.add("w", pattern_bytes(8));
  model.graph.initializer("w", kFloat, {1}, "abcd");
  model.graph.input("c", onnx::TensorProto::BOOL, {});
  model.graph.node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  model.graph.initializer("w", kFloat, {1}, "abcd").end_subgraph();
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("duplicate-name w"));
}

TEST(VerifyStructure, LooksIntoSubgraphsAttributesAndSparseTensors) {
  WrittenModel model;
  const Entries absent{{"location", "absent"}};
  model.graph.input("c", onnx::TensorProto::BOOL, {});
  model.graph.node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  model.graph.external("inner", kFloat, {1}, absent).end_subgraph();
  model.graph.node("Constant", {}, {"k"});
  const auto make_external = [](onnx::TensorProto* tensor) {
    tensor->set_data_type(kFloat);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value("absent");
  };
  auto& graph = *model.graph.model().mutable_graph();
  auto* attribute = graph.mutable_node(1)->add_attribute();
  attribute->set_name("value");
  make_external(attribute->mutable_t());
  auto* sparse = graph.add_sparse_initializer();
  make_external(sparse->mutable_values());
  sparse->mutable_values()->set_name("sparse");
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->tensors, 3U);
  EXPECT_THAT(codes(*report),
              ElementsAre("missing-file sparse", "missing-file inner", "missing-file k.value"));
}

TEST(VerifyStructure, LooksIntoDefaultValuesOfFunctions) {
  WrittenModel model;
  onnx::TensorProto outside;
  outside.set_data_type(kFloat);
  outside.set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = outside.add_external_data();
  entry->set_key("location");
  entry->set_value("../../../etc/passwd");
  (void)add_function_with_default(model.graph.model(), "value", outside);
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->tensors, 1U);
  EXPECT_THAT(codes(*report), ElementsAre("bad-location d::f.value"));
}

TEST(VerifyStructure, ListsAllFindingsInGraphOrderForAnyNumberOfThreads) {
  WrittenModel model;
  std::vector<std::string> wanted;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "t" + std::to_string(i);
    model.add(name, pattern_bytes(400));
    if (i % 3 == 0) {
      std::filesystem::remove(model.file(name));
      wanted.push_back("missing-file " + name);
    } else if (i % 3 == 1) {
      std::filesystem::resize_file(model.file(name), 399);
      wanted.push_back("out-of-range " + name);
    }
  }
  const auto path = model.write();
  for (const int threads : {1, 2, 8}) {
    const auto report = verify_model(path, {.threads = threads, .progress = {}});
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(codes(*report), wanted) << threads << " threads";
  }
}

TEST(VerifyStructure, CountsBytesThatTensorsShareOnce) {
  WrittenModel model;
  model.files().write("w.bin", pattern_bytes(8));
  model.graph.external("a", kFloat, {2}, {{"location", "w.bin"}});
  model.graph.external("b", kFloat, {2}, {{"location", "w.bin"}, {"offset", "0"}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->tensors, 2U);
  EXPECT_EQ(report->bytes, 8U);
}

TEST(VerifyStructure, FindsAFileThatIsNotWhatItsChecksumSays) {
  WrittenModel model;
  model.files().write("abc", "abc");
  constexpr std::int32_t kBytes = onnx::TensorProto::UINT8;
  const std::string sha1_of_abc = "a9993e364706816aba3e25717850c26c9cd0d89d";
  model.graph.external("good", kBytes, {3}, {{"location", "abc"}, {"checksum", sha1_of_abc}});
  model.graph.external(
      "upper", kBytes, {3},
      {{"location", "abc"}, {"checksum", "A9993E364706816ABA3E25717850C26C9CD0D89D"}});
  model.graph.external("wrong", kBytes, {3},
                       {{"location", "abc"}, {"checksum", std::string(40, '0')}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("checksum-differs wrong"));
}

TEST(VerifyStructure, StopsWhenTheCallbackCancels) {
  WrittenModel model;
  model.add("w", pattern_bytes(1 << 20));
  VerifyOptions options;
  options.progress = [](const Progress&) { return Continue::kCancel; };
  EXPECT_THAT(verify_model(model.write(), options), FailsWith(ErrorCode::kCancelled, ""));
}

TEST(VerifyStructure, ReportsProgressUpToTheLastByte) {
  WrittenModel model;
  model.add("a", pattern_bytes(1 << 20)).add("b", pattern_bytes(1 << 10));
  Progress last;
  VerifyOptions options;
  options.drop_cache = DropCache::kYes;
  options.progress = [&](const Progress& progress) {
    EXPECT_GE(progress.bytes_done, last.bytes_done);
    last = progress;
    return Continue::kYes;
  };
  ASSERT_THAT(verify_model(model.write(), options), IsOk());
  EXPECT_EQ(last.phase, Phase::kVerify);
  EXPECT_EQ(last.bytes_done, (1U << 20U) + (1U << 10U));
  EXPECT_EQ(last.bytes_total, last.bytes_done);
}

TEST(VerifyStructure, GivesEveryCodeANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(FindingCode::kModelChanged); ++code) {
    names.insert(finding_code_name(static_cast<FindingCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(FindingCode::kModelChanged) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(FindingText, NamesCodeTensorAndFileAndEscapesThem) {
  EXPECT_EQ(finding_text({FindingCode::kMissingFile, "a\nb", "w.bin", "gone"}),
            "missing-file: 'a\\x0ab': 'w.bin': gone");
  EXPECT_EQ(finding_text({FindingCode::kModelChanged, "", "", "changed"}),
            "model-changed: changed");
}

// 2^62 bytes in pieces would be gigabytes of bookkeeping for a file of 8 bytes.
TEST(VerifyStructure, NeedsNoMemoryForALengthThatTheFileDoesNotHave) {
  constexpr std::int64_t kDeclared = std::int64_t{1} << 60;
  for (const std::string location : {"w.bin", "absent.bin"}) {
    WrittenModel model;
    model.files().write("w.bin", pattern_bytes(8));
    model.graph.external("w", kFloat, {kDeclared}, {{"location", location}});
    const auto report = verify_model(model.write());
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(codes(*report),
                ElementsAre(location == "w.bin" ? "out-of-range w" : "missing-file w"));
  }
}

TEST(VerifyStructure, ReportsTheFirstBadPairOfATensorAndCutsNames) {
  WrittenModel model;
  const Entries entries(3000, {"", ""});
  model.graph.external(std::string(100'000, 'N'), kFloat, {1}, entries);
  model.graph.external("w", kFloat, {1}, {{"location", std::string(100'000, 'L')}});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_LT(report->findings.size(), 5U);
  for (const Finding& finding : report->findings) {
    EXPECT_LT(finding.tensor.size() + finding.file.size() + finding.message.size(), 2000U);
  }
}

TEST(VerifyStructure, KeepsAThousandFindingsAndCountsTheRest) {
  WrittenModel model;
  for (int i = 0; i < 1500; ++i) {
    model.graph.external("w" + std::to_string(i), kFloat, {1}, {{"location", "absent"}});
  }
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->findings.size(), 1001U);
  EXPECT_EQ(report->findings.back().message, "and 500 more findings");
  EXPECT_FALSE(report->ok());
}

TEST(VerifyStructure, DoesNotReadAFileOverAndOverForOverlappingRanges) {
  constexpr std::int64_t kFile = std::int64_t{64} << 20;
  WrittenModel model;
  std::filesystem::resize_file(model.files().write("sparse.bin", ""), kFile);
  for (std::int64_t i = 0; i < 18; ++i) {
    model.graph.external("w" + std::to_string(i), kFloat, {kFile / 4 - i},
                         {{"location", "sparse.bin"}, {"offset", std::to_string(4 * i)}});
  }
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->findings.size(), 18U);
  EXPECT_THAT(report->findings[0].message, HasSubstr("more than 16 times its size"));
}

TEST(VerifyStructure, ReadsARangeThatManyTensorsShare) {
  constexpr std::int64_t kFile = std::int64_t{64} << 20;
  WrittenModel model;
  std::filesystem::resize_file(model.files().write("sparse.bin", ""), kFile);
  for (int i = 0; i < 18; ++i) {
    model.graph.external("w" + std::to_string(i), kFloat, {kFile / 4},
                         {{"location", "sparse.bin"}});
  }
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
}

TEST(VerifyStructure, ReportsNamesThatNothingDefines) {
  WrittenModel model;
  model.graph.input("x", kFloat, {4});
  model.add("a", pattern_bytes(16));
  model.graph.initializer("empty", kFloat, {4}, "");
  model.graph.node("Add", {"x", "w"}, {"y"}).node("If", {"x"}, {"z"});
  model.graph.begin_subgraph("then_branch").node("Mul", {"y", "v"}, {"t"});
  model.graph.output("t", kFloat, {4}).end_subgraph();
  model.graph.output("y", kFloat, {4}).output("lost", kFloat, {4});
  const auto report = verify_model(model.write());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report),
              ElementsAre("open-slot empty", "open-slot w", "open-slot lost", "open-slot v"));
  EXPECT_THAT(report->findings[0].message, HasSubstr("without data"));
  EXPECT_THAT(report->findings[1].message, HasSubstr("nodes read it"));
  EXPECT_THAT(report->findings[2].message, HasSubstr("output of the graph"));
  VerifyOptions options;
  options.open_slots = OpenSlots::kAllow;
  EXPECT_TRUE(verify_model(model.files().path() / "model.onnx", options)->ok());
}

TEST(VerifyStructure, FindsNothingOpenInNamesThatNodesMayLeaveOut) {
  WrittenModel model;
  model.graph.input("x", kFloat, {4}).initializer("none", kFloat, {0}, "");
  model.graph.node("Resize", {"x", "", "none"}, {"y", ""}).output("y", kFloat, {4});
  EXPECT_THAT(codes(*verify_model(model.write())), IsEmpty());
}

TEST(VerifyStructure, CountsWeightsInsideTheModelThatNothingVerifies) {
  WrittenModel model;
  model.add("a", pattern_bytes(16));
  model.graph.initializer("kept", kFloat, {4}, pattern_bytes(16));
  model.graph.initializer("axes", kInt64, {1}, pattern_bytes(8));
  EXPECT_EQ(verify_model(model.write())->inline_uncompared, 1U);
  EXPECT_EQ(verify_model(model.write_with_manifest())->inline_uncompared, 0U);  // the model's CRC
}

TEST(FindModel, TakesTheOneModelOfAFolder) {
  const TempDir dir;
  EXPECT_EQ(find_model(dir.path() / "some.onnx").value(), dir.path() / "some.onnx");
  EXPECT_THAT(find_model(dir.path()), FailsWith(ErrorCode::kNotFound, "contains no *.onnx file"));
  EXPECT_THAT(verify_model(dir.path()), FailsWith(ErrorCode::kNotFound, "contains no *.onnx file"));
  dir.write("b.onnx", "");
  EXPECT_EQ(find_model(dir.path()).value(), dir.path() / "b.onnx");
  dir.write("a.onnx", "");
  EXPECT_THAT(
      find_model(dir.path()),
      FailsWith(ErrorCode::kAmbiguous, "contains several models ('a.onnx', 'b.onnx'); choose one"));
  dir.write("model.onnx", "");
  EXPECT_EQ(find_model(dir.path()).value(), dir.path() / "model.onnx");
}

}  // namespace
}  // namespace onnx_external
