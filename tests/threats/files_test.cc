// Folders and files that attack a save: rows D1, D3, R1 and X3 of docs/security.md. More kinds and
// places: tests/faults/paths.cc.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "save/record.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "threats/threats.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A checkpoint, its graph and an output folder in a folder of their own.
class SaveThreat : public testing::Test {
 protected:
  SaveThreat() {
    fs::create_directory(out_);
    model_ = dir_.write("graph.onnx", *model_for(tensors_).serialize());
    checkpoint_ = dir_.write("c.pt", torch_zip(tensors_));
  }

  Result<SaveReport> save(const fs::path& checkpoint, Layout layout = Layout::kPerTensor) const {
    SaveOptions options;
    options.write.sync = Sync::kNone;
    options.open.threads = 1;
    options.write.threads = 1;
    options.write.overwrite = Overwrite::kAllow;
    options.plan.layout = layout;
    if (layout == Layout::kShards) {
      options.plan.max_shard_bytes = 1'300'000;
    }
    const std::vector<fs::path> paths{checkpoint};
    return save_graph_with_external_data(out_, "model.onnx", "initializers", paths, model_,
                                         options);
  }

  TempDir dir_;
  const std::vector<TestTensor> tensors_ = mixed_tensors(1);
  const fs::path out_ = dir_.path() / "out";
  fs::path model_;
  fs::path checkpoint_;
};

// verify_model() opens nothing that could make it wait, as a FIFO does.
bool is_whole(const fs::path& out) {
  const auto report = verify_model(out / "model.onnx");
  return report && report->ok() && report->used_manifest;
}

// --- leftovers (R1) ----------------------------------------------------------------------------

std::string forged_manifest(const std::string& model, const std::vector<std::string>& files) {
  std::string text =
      R"({"format":"onnx-external-manifest","version":3,"model":{"file":"model.onnx",)"
      R"("bytes":)" +
      std::to_string(model.size()) + R"(,"crc32":")";
  char crc[9];
  std::snprintf(crc, sizeof(crc), "%08x", crc32_of(model));
  text += std::string(crc) + R"("},"tensors":[)";
  for (std::size_t i = 0; i < files.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::string(R"({"slot":")") + std::to_string(i) +
            R"(","file":")" + files[i] +
            R"(","offset":0,"length":1,"crc32":"00000000","dtype":1,"dims":[1]})";
  }
  return text + "]}";
}

// A record that says that the planted model is about to be replaced, with a file of others. Who
// forges it may know the file's size, but not when it is written.
void plant_record(const fs::path& staging, const std::string& planted, const std::string& target) {
  const std::string job(64, 'a');
  auto record = RecordWriter::start(Directory::open(staging).value(), job, WrittenRanges{0U});
  ASSERT_THAT(record, IsOk());
  const ModelIdentity old{planted.size(), crc32_of(planted)};
  const ModelIdentity staged{planted.size() + 1, crc32_of(planted + "!")};
  const ListedFile file{target, target == "mine" || target == "folder/mine" ? 4U : 1U, 1};
  const Publication publication{Overwrite::kAllow,
                                {target.substr(0, target.find('/'))},
                                {file},
                                {{"model.onnx", staged, file, old, {{file, {file}}}}}};
  ASSERT_THAT(record->publish(publication, Sync::kNone), IsOk());
}

TEST_F(SaveThreat, ForgedLeftoversDoNotRemoveOrWriteFilesOfOthers) {
  const TempDir outside;
  outside.write("victim", "v");
  const std::string absolute = (outside.path() / "victim").string();
  const std::vector<std::string> targets{
      absolute,      "../../" + outside.path().filename().string() + "/victim",
      "../mine",     "mine",
      "../out/mine", "./mine",
      "folder/mine", "folder",
      "..",          ".",
      "model.onnx",  "../c.pt",
      "/",           "link",
      "~/x",         "mine\\u0000",
      "way/victim",  "folder/four",
      "/etc/passwd"};
  // Where a forged list is looked for: the old model's data folder, that of a save that died, the
  // manifests beside the model.
  const std::vector<std::string> places{"initializers/manifest.json",
                                        "initializers.1/manifest.json", "model.manifest.json",
                                        "model.1.manifest.json", "folder/manifest.json"};
  const std::string planted = "a model that someone planted";
  std::size_t cases = 0;
  for (const std::string& target : targets) {
    for (const std::string& place : places) {
      fs::remove_all(out_);
      dir_.write("out/mine", "mine");
      dir_.write("out/folder/mine", "mine");
      dir_.write("out/folder/four", "4");  // as long as the forged lists say
      fs::create_symlink(outside.path() / "victim", out_ / "link");
      for (const char* const folder : {"folder", "initializers", "initializers.1"}) {
        fs::create_directories(out_ / folder);
        fs::create_directory_symlink(outside.path(), out_ / folder / "way");
      }
      fs::create_directory_symlink(outside.path(), out_ / "way");
      dir_.write("out/model.onnx", planted);
      dir_.write("out/" + place, forged_manifest(planted, {target}));
      dir_.write("out/.save-external.0123456789abcdef.tmp/model.onnx", planted + "!");
      plant_record(out_ / ".save-external.0123456789abcdef.tmp", planted, target);
      fs::create_symlink(outside.path(), out_ / ".save-external.0123456789abcdef.tmp/initializers");
      fs::create_directory_symlink(outside.path(), out_ / ".save-external.fedcba9876543210.tmp");
      ASSERT_THAT(save(checkpoint_), IsOk()) << target << " in " << place;
      EXPECT_EQ(read_text(outside.path() / "victim"), "v") << target << " in " << place;
      EXPECT_EQ(std::distance(fs::directory_iterator(outside.path()), {}), 1);
      EXPECT_EQ(read_text(out_ / "mine"), "mine") << target << " in " << place;
      EXPECT_EQ(read_text(out_ / "folder/mine"), "mine") << target << " in " << place;
      EXPECT_EQ(read_text(out_ / "folder/four"), "4") << target << " in " << place;
      EXPECT_TRUE(fs::is_symlink(out_ / "link")) << target << " in " << place;
      EXPECT_TRUE(fs::exists(checkpoint_)) << target << " in " << place;
      EXPECT_TRUE(is_whole(out_)) << target << " in " << place;
      ++cases;
    }
  }
  EXPECT_GE(cases, 50U);
}

// --- what is read lies where it is written (D3) --------------------------------------------------

TEST_F(SaveThreat, ACheckpointMayBeInAnyFolderThatTheSaveWritesTo) {
  ASSERT_THAT(save(checkpoint_), IsOk());
  const auto expected = tree_of(out_ / "initializers");
  const std::string bytes = read_text(checkpoint_);
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    for (const char* const name :
         {"model.data", "model.onnx", "initializers/large.weight", "initializers/manifest.json",
          "model.1.data", "model-00001-of-00002.data", "model.manifest.json", "initializers",
          "initializers.1", ".save-external.0123456789abcdef.tmp/model.onnx",
          ".save-external.0123456789abcdef.tmp/initializers/large.weight"}) {
      fs::remove_all(out_);
      const fs::path here = dir_.write(std::string("out/") + name, bytes);
      const auto saved = save(here, layout);
      if (saved) {
        EXPECT_TRUE(is_whole(out_)) << name;
      } else {
        EXPECT_EQ(read_text(here), bytes) << name << ": " << saved.error().message;
      }
      const bool staging = std::string(name).starts_with(".save-external");
      const bool replaced = std::string(name) == "model.onnx" || staging;
      EXPECT_TRUE(replaced || read_text(here) == bytes) << name;
    }
  }
}

TEST_F(SaveThreat, APlantedOutputIsReplacedByNameOnly) {
  const TempDir outside;
  const fs::path victim = outside.write("victim", "victim");
  using Plant = std::function<void(const fs::path&)>;
  const std::vector<std::pair<const char*, Plant>> kinds{
      {"a link", [&](auto& at) { fs::create_symlink(victim, at); }},
      {"a dangling link", [&](auto& at) { fs::create_symlink(outside.path() / "new", at); }},
      {"a link to a folder", [&](auto& at) { fs::create_directory_symlink(outside.path(), at); }},
      {"a hard link", [&](auto& at) { fs::create_hard_link(victim, at); }},
      {"a FIFO", [&](auto& at) { ::mkfifo(at.c_str(), 0600); }},
      {"a folder", [&](auto& at) { fs::create_directory(at); }},
      {"a file", [&](auto& at) { dir_.write(at.lexically_relative(dir_.path()).string(), "x"); }},
      {"a socket's inode", [&](auto& at) { ::mknod(at.c_str(), S_IFSOCK | 0600, 0); }},
      {"a link to itself", [&](auto& at) { fs::create_symlink(at.filename(), at); }}};
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    for (const auto& [kind, plant] : kinds) {
      for (const char* const name :
           {"model.onnx", "initializers", "model.data", "model.manifest.json",
            "model-00001-of-00002.data", "initializers.1", ".save-external.0123456789abcdef.tmp"}) {
        fs::remove_all(out_);
        fs::create_directory(out_);
        plant(out_ / name);
        const auto saved = save(checkpoint_, layout);
        EXPECT_TRUE(!saved || is_whole(out_)) << kind << " " << name;
        EXPECT_EQ(read_text(victim), "victim") << kind << " " << name;
        EXPECT_EQ(std::distance(fs::directory_iterator(outside.path()), {}), 1) << kind << name;
      }
    }
  }
}

// --- a source that changes (X3) ------------------------------------------------------------------

TEST_F(SaveThreat, ACheckpointThatIsCutMeanwhileIsAnErrorOrWasReadBefore) {
  constexpr int kRaces = 60;
  constexpr int kMostRaces = 3000;  // on a busy machine the cutter comes too late again and again
  const std::string bytes = read_text(checkpoint_);
  int refused = 0;
  for (int i = 0; i < kRaces || (refused == 0 && i < kMostRaces); ++i) {
    fs::remove_all(out_);
    std::atomic<bool> begun{false};
    std::thread cutter([&] {
      while (!begun) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(i % kRaces * 150));
      fs::resize_file(checkpoint_, bytes.size() / static_cast<std::size_t>(1 + i % 7));
      if (i % 2 == 0) {
        dir_.write("c.pt", std::string(bytes.size(), 'z'));
      }
    });
    begun = true;
    const auto saved = save(checkpoint_);
    cutter.join();
    refused += saved ? 0 : 1;
    EXPECT_EQ(fs::exists(out_ / "model.onnx"), saved.has_value()) << i;
    if (saved) {
      EXPECT_EQ(read_text(out_ / "initializers/large.weight"), tensors_[0].bytes) << i;
      EXPECT_TRUE(is_whole(out_)) << i;
    }
    dir_.write("c.pt", bytes);
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace onnx_external
