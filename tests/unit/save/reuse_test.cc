#include "save/reuse.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "onnx_external/save_external.h"
#include "save/publish.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Seeds of the tensors' bytes.
struct Versions {
  std::uint32_t a = 1;
  std::uint32_t b = 2;
  std::uint32_t c = 3;
};

// "t" is tied to a, "turned" is transposed; a fills the first shard.
std::vector<TestTensor> tensors_of(const Versions& of) {
  return {
      {.name = "a", .shape = {300, 256}, .bytes = noise(307'200, of.a)},
      {.name = "b", .shape = {50, 100}, .bytes = noise(20'000, of.b)},
      {.name = "t", .shape = {300, 256}, .shares = "a"},
      {.name = "turned",
       .shape = {40, 30},
       .bytes = noise(4800, of.c),
       .strides = std::vector<std::int64_t>{1, 40}},
      {.name = "steps", .dtype = DType::kInt64, .shape = {}, .bytes = noise(8, 9)},
  };
}

// What tells that a file was not touched.
std::string identity(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0
             ? std::to_string(info.st_ino) + " " + std::to_string(info.st_mtim.tv_sec) + " " +
                   std::to_string(info.st_mtim.tv_nsec)
             : "";
}

class Reused : public testing::Test {
 protected:
  Reused() {
    options_.write.overwrite = Overwrite::kAllow;
    options_.write.sync = Sync::kNone;
    options_.plan.reuse = Reuse::kEqualFiles;
    graph_ = dir_.write("graph.onnx", *model_for(tensors_of({})).serialize());
  }

  Result<SaveReport> save(const Versions& versions) {
    const fs::path file = dir_.write("c.pt", torch_zip(tensors_of(versions)));
    const std::vector<fs::path> paths{file};
    const bool shards = options_.plan.layout == Layout::kShards;
    options_.plan.max_shard_bytes = shards ? std::optional<std::uint64_t>(320'000) : std::nullopt;
    return save_graph_with_external_data(out_, "model.onnx", "initializers", paths, graph_,
                                         options_);
  }

  // Saves, and checks every byte of the model, its manifest and what stands in the folder.
  SaveReport save_well(const Versions& versions, const Names& names) {
    const auto report = save(versions);
    EXPECT_THAT(report, IsOk());
    EXPECT_EQ(names_in(out_), names);
    expect_whole(versions);
    return report.value_or(SaveReport{});
  }

  void expect_whole(const Versions& versions) {
    const auto tensors = tensors_of(versions);
    const auto model = Model::load(out_ / "model.onnx");
    ASSERT_THAT(model, IsOk());
    ASSERT_EQ(model->external_tensors().size(), 4U);
    for (const ExternalTensor& tensor : model->external_tensors()) {
      const std::string bytes =
          read_text(out_ / tensor.location).substr(tensor.offset, tensor.length);
      const auto wanted = std::find_if(tensors.begin(), tensors.end(), [&](const TestTensor& t) {
        return t.name == (tensor.name == "t" ? "a" : tensor.name);
      });
      if (tensor.name != "turned") {
        EXPECT_TRUE(bytes == wanted->bytes) << tensor.name;
      }
    }
    const auto report = verify_model(out_ / "model.onnx");
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->used_manifest);
    EXPECT_TRUE(report->ok()) << finding_text(report->findings.front());
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
  fs::path graph_;
  SaveOptions options_;
};

const Names kFirst{"initializers",        "initializers/a",
                   "initializers/b",      "initializers/manifest.json",
                   "initializers/turned", "model.onnx"};

TEST_F(Reused, FilesKeepTheirPlaceWhenTheirBytesDoNotChange) {
  for (const Sync sync : {Sync::kNone, Sync::kFiles}) {
    fs::remove_all(out_);
    options_.write.sync = sync;
    EXPECT_EQ(save_well({}, kFirst).files_reused, 0U);
    const std::string a = identity(out_ / "initializers/a");
    const std::string turned = identity(out_ / "initializers/turned");
    const SaveReport report = save_well(
        {.b = 20}, {"initializers", "initializers.1", "initializers.1/b", "initializers/a",
                    "initializers/turned", "model.1.manifest.json", "model.onnx"});
    EXPECT_EQ(identity(out_ / "initializers/a"), a);
    EXPECT_EQ(identity(out_ / "initializers/turned"), turned);
    EXPECT_EQ(report.files_reused, 2U);
    EXPECT_EQ(report.bytes_reused, 312'000U);
    EXPECT_EQ(report.bytes, 20'000U);
    EXPECT_TRUE(report.verified);
    EXPECT_EQ(report.tensors[0].file, "initializers/a");
    EXPECT_EQ(report.tensors[1].file, "initializers.1/b");
  }
}

TEST_F(Reused, FilesSpreadOverGenerationsAndGoWithTheLastModelThatHasThem) {
  save_well({}, kFirst);
  save_well({.b = 20}, {"initializers", "initializers.1", "initializers.1/b", "initializers/a",
                        "initializers/turned", "model.1.manifest.json", "model.onnx"});
  save_well({.a = 10, .b = 20},
            {"initializers", "initializers.1", "initializers.1/b", "initializers.2",
             "initializers.2/a", "initializers/turned", "model.2.manifest.json", "model.onnx"});
  save_well({.a = 10, .b = 20, .c = 30},
            {"initializers.1", "initializers.1/b", "initializers.2", "initializers.2/a",
             "initializers.3", "initializers.3/turned", "model.3.manifest.json", "model.onnx"});
  options_.plan.reuse = Reuse::kNo;
  save_well({.a = 10, .b = 20, .c = 30},
            {"initializers.4", "initializers.4/a", "initializers.4/b",
             "initializers.4/manifest.json", "initializers.4/turned", "model.onnx"});
}

TEST_F(Reused, FilesMayBeAll) {
  save_well({}, kFirst);
  const std::string model = read_text(out_ / "model.onnx");
  for (const char* manifest : {"model.1.manifest.json", "model.2.manifest.json"}) {
    const SaveReport report = save_well({}, {"initializers", "initializers/a", "initializers/b",
                                             "initializers/turned", manifest, "model.onnx"});
    EXPECT_EQ(report.files_reused, 3U);
    EXPECT_EQ(report.bytes, 0U);
    EXPECT_TRUE(read_text(out_ / "model.onnx") == model);
  }
}

TEST_F(Reused, FilesMayBeNone) {
  save_well({}, kFirst);
  EXPECT_EQ(save_well({10, 20, 30},
                      {"initializers.1", "initializers.1/a", "initializers.1/b",
                       "initializers.1/manifest.json", "initializers.1/turned", "model.onnx"})
                .files_reused,
            0U);
}

// Here the manifest has the right CRC-32, and so has the checkpoint.
TEST_F(Reused, FilesAreReadAndNotBelievedToBeEqual) {
  save_well({}, kFirst);
  std::string b = read_text(out_ / "initializers/b");
  b[12'345] = static_cast<char>(b[12'345] ^ 1);
  dir_.write("out/initializers/b", b);
  EXPECT_EQ(save_well({}, {"initializers", "initializers.1", "initializers.1/b", "initializers/a",
                           "initializers/turned", "model.1.manifest.json", "model.onnx"})
                .files_reused,
            2U);
}

TEST_F(Reused, FilesAreRegularWithOneName) {
  save_well({}, kFirst);
  fs::rename(out_ / "initializers/a", dir_.path() / "elsewhere");
  fs::create_symlink(dir_.path() / "elsewhere", out_ / "initializers/a");
  fs::create_hard_link(out_ / "initializers/b", dir_.path() / "twin");
  EXPECT_EQ(save({})->files_reused, 1U);
  expect_whole({});
}

TEST_F(Reused, FilesMayBeShards) {
  options_.plan.layout = Layout::kShards;
  save_well({}, {"model-00001-of-00002.data", "model-00002-of-00002.data", "model.manifest.json",
                 "model.onnx"});
  const std::string first = identity(out_ / "model-00001-of-00002.data");
  save_well({.b = 20}, {"model-00001-of-00002.data", "model.1-00002-of-00002.data",
                        "model.1.manifest.json", "model.onnx"});
  EXPECT_EQ(identity(out_ / "model-00001-of-00002.data"), first);
  save_well({.a = 10, .b = 20}, {"model.1-00002-of-00002.data", "model.2-00001-of-00002.data",
                                 "model.2.manifest.json", "model.onnx"});
  options_.plan.layout = Layout::kSingle;
  save_well({.a = 10, .b = 20}, {"model.3.data", "model.3.manifest.json", "model.onnx"});
  save_well({.a = 10, .b = 20}, {"model.3.data", "model.4.manifest.json", "model.onnx"});
}

TEST_F(Reused, FilesMayHoldConvertedNumbers) {
  const auto state_in_graph = [this](DType dtype) {
    auto tensors = tensors_of({});
    for (TestTensor& tensor : tensors) {
      tensor.dtype = tensor.dtype == DType::kFloat32 ? dtype : tensor.dtype;
    }
    graph_ = dir_.write("graph.onnx", *model_for(tensors).serialize());
  };
  options_.mapping.casts = Casts::kAllow;
  state_in_graph(DType::kFloat16);
  ASSERT_THAT(save({}), IsOk());
  const std::string a = identity(out_ / "initializers/a");
  const auto report = save({.b = 20});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->files_reused, 2U);
  EXPECT_EQ(report->bytes_reused, 156'000U);  // half of what FilesKeepTheirPlace has
  EXPECT_EQ(identity(out_ / "initializers/a"), a);
  const auto before = tree_of(out_);
  fs::remove_all(out_);
  ASSERT_THAT(save({.b = 20}), IsOk());  // what a first save writes
  EXPECT_EQ(read_text(out_ / "initializers/a"), before.at("initializers/a"));
  EXPECT_EQ(read_text(out_ / "initializers/b"), before.at("initializers.1/b"));
  EXPECT_EQ(read_text(out_ / "initializers/turned"), before.at("initializers/turned"));
  state_in_graph(DType::kBFloat16);  // as long, and never equal
  const auto other = save({.b = 20});
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->files_reused, 0U);
}

TEST_F(Reused, FilesOfAnotherLayoutAreNot) {
  save_well({}, kFirst);
  options_.plan.layout = Layout::kSingle;
  EXPECT_EQ(save_well({}, {"model.1.data", "model.1.manifest.json", "model.onnx"}).files_reused,
            0U);
  options_.plan.layout = Layout::kPerTensor;
  EXPECT_EQ(save_well({}, {"initializers.2", "initializers.2/a", "initializers.2/b",
                           "initializers.2/manifest.json", "initializers.2/turned", "model.onnx"})
                .files_reused,
            0U);
}

TEST_F(Reused, FilesHaveTheirChecksumInTheModel) {
  options_.write.checksum = Checksum::kSha1;
  for (const Layout layout : {Layout::kPerTensor, Layout::kShards}) {
    fs::remove_all(out_);
    options_.plan.layout = layout;
    ASSERT_THAT(save({}), IsOk());
    const auto report = save({.b = 20});
    ASSERT_THAT(report, IsOk());
    EXPECT_GT(report->files_reused, 0U);
    expect_whole({.b = 20});
    const auto model = Model::load(out_ / "model.onnx");
    for (const auto& tensor : model->proto().graph().initializer()) {
      EXPECT_TRUE(tensor.external_data_size() == 0 || tensor.external_data_size() == 4);
    }
  }
}

TEST_F(Reused, FilesServeASavedModelThatIsItsOwnGraph) {
  save_well({}, kFirst);
  graph_ = out_ / "model.onnx";
  save_well({.b = 20}, {"initializers", "initializers.1", "initializers.1/b", "initializers/a",
                        "initializers/turned", "model.1.manifest.json", "model.onnx"});
  // Without a checkpoint all its data is its own.
  const auto report = relayout_model({.folder = out_}, graph_, options_);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->files_reused, 3U);
  expect_whole({.b = 20});
}

TEST_F(Reused, FilesAreOnlyCountedInADryRun) {
  save_well({}, kFirst);
  const auto before = tree_of(out_);
  options_.mode = RunMode::kDryRun;
  const auto report = save({.b = 20});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->files_reused, 2U);
  EXPECT_EQ(report->tensors[0].file, "initializers/a");
  EXPECT_EQ(tree_of(out_), before);
}

TEST_F(Reused, FilesMustStayAsTheyWereCompared) {
  save_well({}, kFirst);
  const auto before = tree_of(out_);
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors_of({.b = 20}))));
  Model model = model_for(tensors_of({}));
  const auto plan = plan_save(model, checkpoint, map_by_name(model, checkpoint), {.folder = out_},
                              options_.plan, options_.write);
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->reused.size(), 2U);
  // The same bytes in another file: somebody else's save may have put it there.
  dir_.write("out/copy", before.at("initializers/a"));
  fs::rename(out_ / "copy", out_ / "initializers/a");
  EXPECT_THAT(write_plan(*plan, model, checkpoint, out_, options_.write),
              FailsWith(ErrorCode::kCorrupt, "changed meanwhile"));
  EXPECT_EQ(tree_of(out_), before);
}

// A killed save's leftovers name files that the model in place has, too; its manifest is lost.
TEST_F(Reused, FilesAreNeverRemovedWhileTheModelRefersToThem) {
  save_well({}, kFirst);
  const std::string old_model = read_text(out_ / "model.onnx");
  const std::string old_manifest = read_text(out_ / "initializers/manifest.json");
  ASSERT_THAT(save({.b = 20}), IsOk());
  dir_.write("out/.save-external.0123456789abcdef.tmp/model.onnx", old_model);
  for (const bool has_manifest : {true, false}) {
    dir_.write("out/initializers/manifest.json", old_manifest);
    dir_.write("out/initializers/b", "the old one");
    if (!has_manifest) {
      fs::remove(out_ / "model.1.manifest.json");
      dir_.write("out/.save-external.0123456789abcdef.tmp/model.onnx", old_model);
    }
    {
      const auto next = Transaction::begin(
          out_, {"model.onnx", "initializers.2", Sync::kNone, Overwrite::kAllow});
      ASSERT_THAT(next, IsOk());
    }
    Names left{"initializers",        "initializers.1",        "initializers.1/b", "initializers/a",
               "initializers/turned", "model.1.manifest.json", "model.onnx"};
    std::erase_if(left, [&](const std::string& name) {
      return !has_manifest && name == "model.1.manifest.json";
    });
    EXPECT_EQ(names_in(out_), left);
  }
}

TEST_F(Reused, FilesOfAnotherModelAreNeverRemoved) {
  save_well({}, kFirst);
  ASSERT_THAT(save({.b = 20}), IsOk());
  // A manifest that claims another model's file.
  std::string manifest = read_text(out_ / "model.1.manifest.json");
  const std::string claimed = "initializers/a\"";
  manifest.replace(manifest.find(claimed), claimed.size(), "initializers.7/a\"");
  dir_.write("out/model.9.manifest.json", manifest);
  fs::remove(out_ / "model.1.manifest.json");
  std::string other = manifest;
  const std::string name = "\"model.onnx\"";
  other.replace(other.find(name), name.size(), "\"other.onnx\"");
  dir_.write("out/initializers.7/a", "another model's");
  dir_.write("out/initializers.7/manifest.json", other);
  options_.plan.reuse = Reuse::kNo;
  ASSERT_THAT(save({.b = 30}), IsOk());
  EXPECT_EQ(read_text(out_ / "initializers.7/a"), "another model's");
  EXPECT_FALSE(fs::exists(out_ / "model.9.manifest.json"));
}

class TeamOfTwo final : public Team {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] std::string from_leader(std::string text) override { return text; }
  [[nodiscard]] std::vector<std::string> from_all(std::string text) override {
    return {text, text};
  }
};

TEST_F(Reused, FilesAreForOneProcess) {
  TeamOfTwo team;
  options_.write.team = &team;
  EXPECT_THAT(save({}), FailsWith(ErrorCode::kInvalidArgument, "for one process"));
}

}  // namespace
}  // namespace onnx_external
