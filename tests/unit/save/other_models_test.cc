// Other models of the output folder: what they refer to stays when a model is replaced.
#include "save/other_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx_external/verify.h"
#include "save/output_folder.h"
#include "save/publish.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using Left = std::vector<std::pair<std::string, std::string>>;

class OtherModels : public testing::Test {
 protected:
  // Replaces the model by one with the weights of another seed, and returns what was left.
  Left save(std::uint32_t seed, Layout layout = Layout::kPerTensor) {
    const auto tensors = mixed_tensors(seed);
    Model model = model_for(tensors);
    WriteOptions options;
    options.sync = Sync::kNone;
    options.overwrite = Overwrite::kAllow;
    auto staged = stage(open_one(dir_.write("c.pt", torch_zip(tensors))), model, out_, options,
                        {.layout = layout});
    EXPECT_THAT(staged, IsOk());
    EXPECT_THAT(staged->publish(), IsOk());
    EXPECT_TRUE(is_complete(out_));
    return staged->kept_data().for_models;
  }
  bool has_folder(const char* name) const { return fs::is_directory(out_ / name); }

  static bool is_sound(const fs::path& model) {
    const auto report = verify_model(model);
    return report && report->ok() && report->used_manifest;
  }

  // A model of one external tensor at `location`.
  void write_model(const std::string& name, const std::string& location) const {
    GraphBuilder b;
    b.external("w", kFloat, {16}, {{"location", location}});
    b.node("Use", {"w"}, {"y"}).output("y", kFloat, {1});
    dir_.write("out/" + name, b.bytes());
  }

  const TempDir dir_;
  const fs::path out_ = dir_.path() / "out";
};

TEST_F(OtherModels, LeaveNothingIfThereAreNone) {
  save(1);
  EXPECT_THAT(save(2), IsEmpty());
  EXPECT_FALSE(has_folder("initializers"));
}

TEST_F(OtherModels, ThatAreCopiesKeepTheirDataAndTheManifest) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    fs::remove_all(out_);
    save(1, layout);
    fs::copy_file(out_ / "model.onnx", out_ / "keep.onnx");
    const Left left = save(2, layout);
    ASSERT_FALSE(left.empty());
    EXPECT_EQ(left[0].second, "keep.onnx");
    EXPECT_TRUE(is_sound(out_ / "keep.onnx"));
    EXPECT_TRUE(is_sound(out_ / "model.onnx"));
    EXPECT_THAT(save(3, layout), IsEmpty());  // the copy's data is no model's that is replaced
    EXPECT_TRUE(is_sound(out_ / "keep.onnx"));
    EXPECT_TRUE(is_sound(out_ / "model.onnx"));
  }
}

TEST_F(OtherModels, KeepOnlyTheFilesThatTheyReferTo) {
  save(1);
  write_model("part.ONNX", "./initializers//turned");
  EXPECT_THAT(save(2), ElementsAre(Pair("initializers/turned", "part.ONNX")));
  EXPECT_EQ(names_in(out_ / "initializers"), (std::vector<std::string>{"manifest.json", "turned"}));
}

TEST_F(OtherModels, OfOtherDataAndFilesThatAreNotModelsKeepNothing) {
  save(1);
  write_model("other.onnx", "data/small.bias");
  dir_.write("out/notes.onnx", "no model");
  fs::create_directory(out_ / "folder.onnx");
  fs::create_symlink("nowhere", out_ / "dangling.onnx");
  EXPECT_THAT(save(2), IsEmpty());
  EXPECT_FALSE(has_folder("initializers"));
}

TEST_F(OtherModels, OfAFolderAreListedWithTheFilesOfEach) {
  write_model("b.onnx", "shared");
  write_model("a.onnx", "shared");
  write_model("c.onnx", "c/own");
  write_model("model.onnx", "mine");
  const auto files =
      files_of_other_models(*Directory::open(out_), std::vector<std::string>{"model.onnx"});
  ASSERT_TRUE(files);
  EXPECT_THAT(*files, ElementsAre(Pair("c/own", "c.onnx"), Pair("shared", "a.onnx")));
}

TEST_F(OtherModels, LoseNoDataToAModelThatIsGivenItsName) {
  save(1, Layout::kSingle);
  const auto before = tree_of(out_);
  TransactionOptions options{{"model.data"}, "initializers.1", Sync::kNone, Overwrite::kAllow};
  EXPECT_THAT(Transaction::begin(open_output_folder(out_, Sync::kNone).value(), options),
              FailsWith(ErrorCode::kAlreadyExists, "contains data of the model 'model.onnx'"));
  EXPECT_EQ(tree_of(out_), before);
}

TEST_F(OtherModels, TooManyToBeReadKeepEverything) {
  save(1);
  for (std::size_t i = 0; i <= kMaxOtherModels; ++i) {
    dir_.write("out/" + std::to_string(i) + ".onnx", "no model");
  }
  save(2);
  EXPECT_TRUE(has_folder("initializers"));
  for (std::size_t i = 0; i <= kMaxOtherModels; ++i) {
    fs::remove(out_ / (std::to_string(i) + ".onnx"));
  }
  save(3);  // removes what the two before have left
  EXPECT_FALSE(has_folder("initializers"));
  EXPECT_FALSE(has_folder("initializers.1"));
}

TEST_F(OtherModels, LeaveTheNextFolderToASecondModel) {
  save(1);
  const auto choose = [&](const char* model, Overwrite overwrite = Overwrite::kRefuse) {
    return choose_data_dir(out_, model, "initializers", overwrite);
  };
  EXPECT_EQ(choose("second.onnx").value(), "initializers.1");
  EXPECT_THAT(choose("model.onnx"), FailsWith(ErrorCode::kAlreadyExists, "model.onnx: exists"));
  fs::remove(out_ / "model.onnx");
  EXPECT_THAT(choose("second.onnx"), FailsWith(ErrorCode::kAlreadyExists, "initializers: exists"));
}

TEST_F(OtherModels, InOneFolderAreReplacedOneByOne) {
  const auto tensors = mixed_tensors(1);
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
  const auto save_as = [&](const std::string& name, Overwrite overwrite) {
    Model model = model_for(tensors);
    WriteOptions write;
    write.sync = Sync::kNone;
    write.overwrite = overwrite;
    const auto plan = plan_save(model, checkpoint, map_by_name(model, checkpoint),
                                {.folder = out_, .model_name = name}, {}, write);
    ASSERT_THAT(plan, IsOk());
    auto staged = write_plan(*plan, model, checkpoint, out_, write);
    ASSERT_THAT(staged, IsOk());
    ASSERT_THAT(staged->publish(), IsOk());
    EXPECT_THAT(staged->kept_data().for_models, IsEmpty());
  };
  for (const char* name : {"a.onnx", "b.onnx", "c.onnx"}) {
    save_as(name, Overwrite::kRefuse);
  }
  for (const char* name : {"b.onnx", "a.onnx", "c.onnx", "b.onnx"}) {
    save_as(name, Overwrite::kAllow);
    for (const char* each : {"a.onnx", "b.onnx", "c.onnx"}) {
      EXPECT_TRUE(is_sound(out_ / each)) << each;
    }
  }
  std::size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(out_)) {
    folders += entry.is_directory() ? 1U : 0U;
  }
  EXPECT_EQ(folders, 3U);
}

TEST_F(OtherModels, BehindDanglingLinksAreNamedAsSuch) {
  fs::create_symlink("nowhere", dir_.path() / "link");
  EXPECT_THAT(choose_data_dir(dir_.path() / "link", "m.onnx", "data", Overwrite::kRefuse),
              FailsWith(ErrorCode::kNotFound, "link: is a symbolic link to 'nowhere'"));
  fs::create_symlink("nowhere", dir_.path() / "m.onnx");
  EXPECT_THAT(choose_data_dir(dir_.path(), "m.onnx", "data", Overwrite::kRefuse),
              FailsWith(ErrorCode::kNotFound, "m.onnx: is a symbolic link to 'nowhere'"));
  EXPECT_THAT(choose_data_dir(dir_.path(), "m.onnx", "data", Overwrite::kAllow), IsOk());
}

}  // namespace
}  // namespace onnx_external
