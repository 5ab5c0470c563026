// Data files beside the model under a name of the caller's (PlanOptions::data_name).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx_external/verify.h"
#include "save/output_folder.h"
#include "save/publish.h"
#include "save/record.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

struct HowTest {
  Layout layout = Layout::kSingle;
  std::string name = {};
};

class DataNames : public testing::Test {
 protected:
  Result<StagedSave> stage_seed(std::uint32_t seed, const HowTest& how,
                                Overwrite overwrite = Overwrite::kAllow) {
    const auto tensors = mixed_tensors(seed);
    Model model = model_for(tensors);
    WriteOptions options;
    options.sync = Sync::kNone;
    options.overwrite = overwrite;
    PlanOptions plan{.layout = how.layout, .data_name = how.name};
    if (how.layout == Layout::kShards) {
      plan.max_shard_bytes = 1'000'000;
    }
    return stage(open_one(dir_.write("c.pt", torch_zip(tensors))), model, out_, options, plan);
  }
  // The names in the output folder after the save.
  std::vector<std::string> save(std::uint32_t seed, const HowTest& how,
                                Overwrite overwrite = Overwrite::kAllow) {
    auto staged = stage_seed(seed, how, overwrite);
    EXPECT_THAT(staged, IsOk());
    if (staged) {
      EXPECT_THAT(staged->publish(), IsOk());
    }
    EXPECT_TRUE(is_sound("model.onnx"));
    return names_in(out_);
  }
  [[nodiscard]] bool is_sound(const char* model) const {
    const auto report = verify_model(out_ / model);
    return report && report->ok() && report->used_manifest;
  }

  const TempDir dir_;
  const fs::path out_ = dir_.path() / "out";
};

TEST_F(DataNames, AreThoseOfTheFirstSaveAndLaterOnesAreNumbered) {
  EXPECT_THAT(save(1, {.name = "weights.bin"}, Overwrite::kRefuse),
              ElementsAre("model.manifest.json", "model.onnx", "weights.bin"));
  EXPECT_THAT(save(2, {.name = "weights.bin"}),
              ElementsAre("model.1.manifest.json", "model.onnx", "weights.1.bin"));
  EXPECT_THAT(save(3, {.name = "weights.bin"}),
              ElementsAre("model.2.manifest.json", "model.onnx", "weights.2.bin"));
}

TEST_F(DataNames, AreAlsoThoseOfShards) {
  EXPECT_THAT(save(1, {Layout::kShards, "weights.bin"}, Overwrite::kRefuse),
              ElementsAre("model.manifest.json", "model.onnx", "weights-00001-of-00002.bin",
                          "weights-00002-of-00002.bin"));
  EXPECT_THAT(save(2, {Layout::kShards, "weights.bin"}),
              ElementsAre("model.1.manifest.json", "model.onnx", "weights.1-00001-of-00002.bin",
                          "weights.1-00002-of-00002.bin"));
}

std::vector<HowTest> all_ways() {
  std::vector<HowTest> ways = {
      {Layout::kPerTensor}, {Layout::kInline}, {Layout::kShards}, {Layout::kShards, "weights.bin"}};
  for (const char* name : {"", "weights.bin", "model.onnx.data", "noext"}) {
    ways.push_back({Layout::kSingle, name});
  }
  return ways;
}

// Whatever the replaced data was called, nothing of it stays.
TEST_F(DataNames, MayDifferFromThoseOfTheReplacedModel) {
  for (const HowTest& first : all_ways()) {
    for (const HowTest& second : all_ways()) {
      SCOPED_TRACE(first.name + " then " + second.name);
      fs::remove_all(out_);
      const auto before = save(1, first);
      for (const std::string& name : save(2, second)) {
        EXPECT_TRUE(name == "model.onnx" ||
                    std::find(before.begin(), before.end(), name) == before.end())
            << name;
      }
    }
  }
}

// What a save of "weights.bin" over another model records before it renames anything.
void record_publication(const fs::path& staging) {
  const auto folder = Directory::open(staging).value();
  const Directory out = Directory::open(staging.parent_path()).value();
  auto record = RecordWriter::start(folder, "", {});
  ASSERT_THAT(record, IsOk());
  const ModelIdentity old = read_identity(out, "model.onnx").value();
  const auto listed = [&](const char* name) { return list_file(out, name, name).value(); };
  const Publication publication{
      Overwrite::kAllow,
      {"model.1.manifest.json", "weights.1.bin"},
      {listed("weights.1.bin")},
      {{"model.onnx", read_identity(folder, "model.onnx").value(), listed("model.1.manifest.json"),
        old, list_data_of(out, "model.onnx", old, {}).value()}}};
  ASSERT_THAT(record->publish(publication, Sync::kNone), IsOk());
}

TEST_F(DataNames, OfKilledSavesAreFoundByTheNext) {
  for (const HowTest& next : {HowTest{.name = "weights.bin"}, HowTest{.name = "others.bin"},
                              HowTest{.layout = Layout::kPerTensor}}) {
    fs::remove_all(out_);
    save(1, {.name = "first.bin"});
    fs::create_directory(dir_.path() / "dead");
    {
      auto staged = stage_seed(2, {.name = "weights.bin"});
      ASSERT_THAT(staged, IsOk());
      const fs::path staging = staged->model_path().parent_path();
      fs::copy(staging, dir_.path() / "dead" / staging.filename(), fs::copy_options::recursive);
    }
    // As a kill leaves it between the renames of the data and of the model.
    for (const auto& entry : fs::directory_iterator(dir_.path() / "dead")) {
      fs::copy(entry.path(), out_ / entry.path().filename(), fs::copy_options::recursive);
      fs::rename(out_ / entry.path().filename() / "weights.1.bin", out_ / "weights.1.bin");
      fs::rename(out_ / entry.path().filename() / "model.1.manifest.json",
                 out_ / "model.1.manifest.json");
      record_publication(out_ / entry.path().filename());
    }
    fs::remove_all(dir_.path() / "dead");
    save(3, next);
    std::size_t data = 0;
    for (const auto& [name, content] : tree_of(out_)) {
      data += name.ends_with(".bin") ? 1U : 0U;
      EXPECT_FALSE(name.starts_with(".save-external")) << name;
    }
    EXPECT_EQ(data, next.layout == Layout::kSingle ? 1U : 0U);
  }
}

TEST_F(DataNames, MayBeUsedByACopyOfTheModel) {
  for (const HowTest& how : {HowTest{.name = "weights.bin"}, HowTest{Layout::kShards, "w"}}) {
    fs::remove_all(out_);
    save(1, how);
    fs::copy_file(out_ / "model.onnx", out_ / "keep.onnx");
    EXPECT_TRUE(is_sound("keep.onnx"));
    save(2, {.name = "others.bin"});
    EXPECT_TRUE(is_sound("keep.onnx"));
  }
}

TEST_F(DataNames, DoNotLetAManifestRemoveWhatItDoesNotKnow) {
  for (const std::string name : {"weights.bin", ""}) {
    const std::string file = name.empty() ? "model.data" : name;
    fs::remove_all(out_);
    save(1, {.name = name});
    dir_.write("out/" + file, "another file of the same name");
    save(2, {});
    EXPECT_EQ(read_text(out_ / file), "another file of the same name");

    fs::remove_all(out_);
    save(1, {.name = name});
    std::string changed = read_text(out_ / file);
    changed[100] = static_cast<char>(changed[100] ^ 1);  // of the same size
    dir_.write("out/" + file, changed);
    fs::last_write_time(out_ / file, fs::file_time_type::clock::now());
    save(2, {});
    EXPECT_EQ(read_text(out_ / file), changed);
  }
}

// As where a folder was copied without its times.
TEST_F(DataNames, OfFilesThatAreNewerThanTheirManifestAreKnownByTheBytes) {
  save(1, {.name = "weights.bin"});
  fs::last_write_time(out_ / "weights.bin", fs::file_time_type::clock::now());
  EXPECT_THAT(save(2, {.name = "weights.bin"}),
              ElementsAre("model.1.manifest.json", "model.onnx", "weights.1.bin"));
}

TEST_F(DataNames, ThatAreTakenAreRefusedOrNumbered) {
  fs::create_directories(out_);
  for (const char* taken : {"weights.bin", "weights-00001-of-00009.bin"}) {
    dir_.write(std::string("out/") + taken, "mine");
    const auto refused = stage_seed(1, {.name = "weights.bin"}, Overwrite::kRefuse);
    EXPECT_THAT(refused, FailsWith(ErrorCode::kAlreadyExists, std::string(taken) + ": exists"));
    save(1, {.name = "weights.bin"});
    EXPECT_TRUE(fs::exists(out_ / "weights.1.bin"));
    EXPECT_EQ(read_text(out_ / taken), "mine");
    fs::remove_all(out_);
    fs::create_directories(out_);
  }
  dir_.write("out/model.data", "mine");  // the usual name is not in the way of another
  EXPECT_THAT(save(1, {.name = "weights.bin"}, Overwrite::kRefuse),
              ElementsAre("model.data", "model.manifest.json", "model.onnx", "weights.bin"));
}

TEST_F(DataNames, MustBePlainAndUnused) {
  for (const char* bad :
       {".", "..", "a/b", "/a", "a..b", "#a", "a\\b", "a\nb", "model.onnx", "MODEL.onnx", "x.onnx",
        "model.manifest.json", "initializers", ".save-external.0123456789abcdef.tmp"}) {
    EXPECT_THAT(stage_seed(1, {.name = bad}), FailsWith(ErrorCode::kInvalidArgument, "data file "))
        << bad;
  }
  EXPECT_THAT(stage_seed(1, {.name = std::string(201, 'w')}),
              FailsWith(ErrorCode::kInvalidArgument, "longer than 200 bytes"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(DataNames, AreForLayoutsWithFilesBesideTheModel) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kInline, Layout::kLink}) {
    const auto refused = stage_seed(1, {layout, "weights.bin"});
    EXPECT_THAT(refused,
                FailsWith(ErrorCode::kInvalidArgument,
                          "'weights.bin', applies only to data in files next to the model"));
  }
}

}  // namespace
}  // namespace onnx_external
