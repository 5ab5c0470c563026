#include "save/file_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "onnx_external/plan.h"
#include "save/layout.h"

namespace onnx_external {
namespace {

using Names = std::vector<std::string>;

std::string file_of(const std::string& name) {
  return data_file_names({name}).front();
}

// The rules of onnx, of ONNX Runtime and of Windows, written anew.
bool keeps_the_rules(const std::string& file) {
  const std::string lower = ascii_lower(file);
  const std::string stem = lower.substr(0, lower.find('.'));
  const std::set<std::string> devices{"con", "prn", "aux", "nul", "com1", "lpt1", "com9", "lpt9"};
  return !file.empty() && file.size() <= 200 && file.front() != '.' && file.back() != '.' &&
         file.find("..") == std::string::npos && !devices.contains(stem) &&
         lower != "manifest.json" && std::all_of(file.begin(), file.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

TEST(DataFileNames, KeepsSafeNames) {
  const Names names{"layer1.0.conv1.weight", "Fc_W-2", "a", std::string(200, 'x')};
  EXPECT_EQ(data_file_names(names), names);
}

TEST(DataFileNames, HashesEveryUnsafeName) {
  const Names names{"",
                    ".hidden",
                    "dot.",
                    "a..b",
                    "a/b",
                    "a\\b",
                    "con",
                    "NUL.bias",
                    "com3.x",
                    "ma\xC3\xB1",
                    "a b",
                    "a:b",
                    "new\nline",
                    "/etc/passwd",
                    "../../x",
                    "Manifest.JSON",
                    "..",
                    std::string(201, 'x'),
                    std::string("nul\0x", 5),
                    "w-0123456789abcdef"};
  for (const std::string& name : names) {
    const std::string file = file_of(name);
    EXPECT_NE(file, name);
    EXPECT_TRUE(keeps_the_rules(file)) << file;
  }
}

TEST(DataFileNames, ShowsTheNameInTheHashedOne) {
  // sha256("a/b") begins with c14cddc033f64b9d.
  EXPECT_EQ(file_of("a/b"), "a_b-c14cddc033f64b9d");
}

TEST(DataFileNames, HashesBothOfTwoNamesThatDifferInCase) {
  const Names files = data_file_names({"W", "w", "x"});
  EXPECT_EQ(files[2], "x");
  EXPECT_NE(files[0], "W");
  EXPECT_NE(files[1], "w");
  EXPECT_NE(ascii_lower(files[0]), ascii_lower(files[1]));
}

TEST(DataFileNames, KeepsApartANameThatLooksLikeTheHashOfAnother) {
  const std::string hashed = file_of("a/b");
  const Names files = data_file_names({"a/b", hashed});
  EXPECT_EQ(files[0], hashed);
  EXPECT_NE(files[1], hashed);
}

TEST(DataFileNames, GivesEqualNamesDifferentFiles) {
  const Names files = data_file_names({"w", "w", "w"});
  EXPECT_EQ(std::set<std::string>(files.begin(), files.end()).size(), 3U);
}

TEST(DataFileNames, KeepsTheRulesForAHundredThousandRandomNames) {
  std::mt19937 random(42);
  using namespace std::string_literals;
  const std::string alphabet = "aAbBcC01._-/\\ :*\x01\xC3nulcom\0.."s;
  std::set<std::string> unique;
  while (unique.size() < 100'000) {
    std::string name;
    const std::size_t length = random() % 12 == 0 ? 150 + random() % 100 : random() % 9;
    for (std::size_t i = 0; i < length; ++i) {
      name += alphabet[random() % alphabet.size()];
    }
    unique.insert(name);
  }
  Names names(unique.begin(), unique.end());
  const Names files = data_file_names(names);
  std::map<std::string, std::string> file_of_name;
  std::set<std::string> folded;
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(keeps_the_rules(files[i])) << quote(names[i]) << " gives " << files[i];
    ASSERT_TRUE(folded.insert(ascii_lower(files[i])).second) << files[i];
    file_of_name[names[i]] = files[i];
  }
  std::shuffle(names.begin(), names.end(), random);
  const Names shuffled = data_file_names(names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_EQ(shuffled[i], file_of_name[names[i]]);
  }
}

TEST(StreamedFileName, HashesUpperCaseSoThatTwinsNeedNotBeKnown) {
  EXPECT_EQ(streamed_file_name("fc.weight"), "fc.weight");
  EXPECT_EQ(streamed_file_name("fc.Weight"), hashed_file_name("fc.Weight"));
  EXPECT_EQ(streamed_file_name("a/b"), hashed_file_name("a/b"));
}

TEST(FilesBesideTheModel, AreNamedAfterTheModelAndTheGeneration) {
  EXPECT_EQ(numbered_stem("model.onnx", "initializers"), "model");
  EXPECT_EQ(numbered_stem("model.onnx", "initializers.7"), "model.7");
  EXPECT_EQ(numbered_stem("net", "data.x"), "net");
  EXPECT_EQ(numbered_stem(".onnx", "data"), ".onnx");
  const DataName name = data_name_of("model.onnx", "");
  EXPECT_EQ(single_file_name(name, "initializers"), "model.data");
  EXPECT_EQ(single_file_name(name, "initializers.7"), "model.7.data");
  EXPECT_EQ(shard_file_name(name, "initializers", 2, 345), "model-00002-of-00345.data");
  EXPECT_EQ(manifest_file_name("model"), "model.manifest.json");
}

TEST(FilesBesideTheModel, MayHaveAnotherNameWithTheGenerationBeforeItsSuffix) {
  struct Case {
    const char* name;
    const char* first;
    const char* third;
    const char* shard;
  };
  for (const auto& [given, first, third, shard] :
       {Case{"weights.bin", "weights.bin", "weights.3.bin", "weights.3-00001-of-00002.bin"},
        Case{"model.onnx.data", "model.onnx.data", "model.onnx.3.data",
             "model.onnx.3-00001-of-00002.data"},
        Case{"weights", "weights", "weights.3", "weights.3-00001-of-00002"},
        Case{".hidden", ".hidden", ".hidden.3", ".hidden.3-00001-of-00002"},
        Case{"v1.2.bin", "v1.2.bin", "v1.2.3.bin", "v1.2.3-00001-of-00002.bin"},
        Case{"w-00001-of-00002.bin", "w-00001-of-00002.bin", "w-00001-of-00002.3.bin",
             "w-00001-of-00002.3-00001-of-00002.bin"}}) {
    const DataName name = data_name_of("model.onnx", given);
    EXPECT_EQ(single_file_name(name, "initializers"), first);
    EXPECT_EQ(single_file_name(name, "initializers.3"), third);
    EXPECT_EQ(shard_file_name(name, "initializers.3", 1, 2), shard);
    EXPECT_EQ(generation_of_data_file(first, name), 0U);
    EXPECT_EQ(generation_of_data_file(third, name), 3U);
    EXPECT_EQ(generation_of_data_file(shard, name), 3U);
    EXPECT_EQ(shard_mark(shard), "-00001-of-00002");
    EXPECT_EQ(generation_of_data_file(std::string("x") + first, name), std::nullopt);
    EXPECT_EQ(generation_of_data_file(std::string(first) + "x", name), std::nullopt);
  }
  EXPECT_EQ(shard_mark("weights.bin"), "");
  EXPECT_EQ(shard_mark("-00001-of-00002.bin"), "");
}

TEST(FilesBesideTheModel, AreCountedBehindTheirSuffixIfItIsOnnxData) {
  const DataName name = data_name_of("model.onnx", "model.onnx_data");
  EXPECT_EQ(single_file_name(name, "initializers"), "model.onnx_data");
  EXPECT_EQ(shard_file_name(name, "initializers", 1, 12), "model.onnx_data");
  EXPECT_EQ(shard_file_name(name, "initializers", 12, 12), "model.onnx_data_11");
  EXPECT_EQ(shard_file_name(name, "initializers.3", 2, 2), "model.3.onnx_data_1");
  EXPECT_EQ(generation_of_data_file("model.onnx_data", name), 0U);
  EXPECT_EQ(generation_of_data_file("model.onnx_data_11", name), 0U);
  EXPECT_EQ(generation_of_data_file("model.3.onnx_data_1", name), 3U);
  for (const char* other : {"model.onnx_data_", "model.onnx_data_01", "model.onnx_data_0",
                            "model.onnx_data_1_1", "model_1", "1", "other.onnx_data_1"}) {
    EXPECT_EQ(generation_of_data_file(other, name), std::nullopt) << other;
  }
}

TEST(FilesBesideTheModel, AreNotCalledLikeOthers) {
  for (const char* name : {"model.onnx", "Model.ONNX", "other.onnx", "x.manifest.json",
                           "manifest.json", "test_data_set_0"}) {
    EXPECT_TRUE(data_name_fault("model.onnx", name)) << name;
  }
  EXPECT_TRUE(data_name_fault("net", "net"));
  for (const char* name : {"model.onnx.data", "weights.bin", "onnx", "manifest.json.data"}) {
    EXPECT_FALSE(data_name_fault("model.onnx", name)) << name;
  }
}

TEST(FilesBesideTheModel, AreKnownByTheirNames) {
  EXPECT_EQ(stem_of_data_file("model.data"), "model");
  EXPECT_EQ(stem_of_data_file("model.7-00001-of-00002.data"), "model.7");
  EXPECT_EQ(stem_of_data_file("model-0001-of-00002.data"), "model-0001-of-00002");
  EXPECT_EQ(stem_of_data_file("-00001-of-00002.data"), "-00001-of-00002");
  EXPECT_EQ(stem_of_data_file(".data"), std::nullopt);
  EXPECT_EQ(stem_of_data_file("model.data.txt"), std::nullopt);
  EXPECT_EQ(stem_of_manifest_file("model.2.manifest.json"), "model.2");
  EXPECT_EQ(stem_of_manifest_file("manifest.json"), std::nullopt);
}

}  // namespace
}  // namespace onnx_external
