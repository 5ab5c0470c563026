// A save that replaces a model leaves the new one's files and nothing else, whatever the two look
// like, on file systems whose renames have flags and on those without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "faults/fault_injection.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "save/other_models.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A layout and the name of the data folder.
struct Choice {
  Layout layout = Layout::kPerTensor;
  std::string data_dir = "initializers";
};

// Three layouts with data files and three names, and models without data of their own.
std::vector<Choice> choices_with_data() {
  std::vector<Choice> choices;
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    for (const char* const data_dir : {"initializers", "weights", "weights.7"}) {
      choices.push_back({layout, data_dir});
    }
  }
  return choices;
}

std::vector<Choice> all_choices() {
  std::vector<Choice> choices = choices_with_data();
  for (const Layout layout : {Layout::kInline, Layout::kLink}) {
    choices.push_back({layout, "initializers"});
    choices.push_back({layout, "weights"});
  }
  return choices;
}

std::string text_of(const Choice& choice) {
  return std::to_string(static_cast<int>(choice.layout)) + " " + choice.data_dir;
}

class Leftovers : public testing::Test {
 protected:
  Leftovers() {
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      dir_.write(std::to_string(seed) + ".pt", torch_zip(tensors(seed)));
    }
    dir_.write("graph.onnx", *model_for(tensors(0)).serialize());
  }
  ~Leftovers() override { pretend({}); }

  static std::vector<TestTensor> tensors(std::uint32_t seed) {
    return {{.name = "a", .shape = {600}, .bytes = noise(2400, seed)},
            {.name = "b", .shape = {500}, .bytes = noise(2000, seed + 10)}};
  }

  Result<SaveReport> save(std::uint32_t seed, const Choice& choice) const {
    SaveOptions options;
    options.open.threads = 1;
    options.write.threads = 1;
    options.write.sync = Sync::kNone;
    options.write.overwrite = Overwrite::kAllow;
    options.verification = Verification::kOff;
    options.plan.layout = choice.layout;
    if (choice.layout == Layout::kShards) {
      options.plan.max_shard_bytes = 2500;
    }
    const std::string name = std::to_string(seed) + ".pt";
    fs::path checkpoint = dir_.path() / name;
    if (choice.layout == Layout::kLink) {
      fs::create_directories(out_);
      fs::copy_file(checkpoint, out_ / name, fs::copy_options::skip_existing);
      checkpoint = out_ / name;
    }
    const std::vector<fs::path> checkpoints{checkpoint};
    return save_graph_with_external_data(out_, "model.onnx", choice.data_dir, checkpoints,
                                         dir_.path() / "graph.onnx", options);
  }

  // The files that the model refers to, checkpoints, and one manifest.
  testing::AssertionResult has_the_model_alone() const {
    const auto report = verify_model(out_ / "model.onnx");
    if (!report || !report->ok() || !report->used_manifest) {
      return testing::AssertionFailure() << "the model is not complete";
    }
    std::set<std::string> wanted{"model.onnx"};
    const Model model = Model::load(out_ / "model.onnx").value();
    for (const ExternalTensor& tensor : model.external_tensors()) {
      wanted.insert(tensor.location);
    }
    std::size_t manifests = 0;
    for (const auto& [name, content] : tree_of(out_)) {
      const bool is_manifest = name.ends_with("manifest.json");
      const bool is_folder = content == "(no file)" && !fs::is_empty(out_ / name);
      manifests += is_manifest ? 1U : 0U;
      if (!is_manifest && !is_folder && !name.ends_with(".pt") && !wanted.contains(name)) {
        return testing::AssertionFailure() << name << " is left";
      }
    }
    return manifests == 1 ? testing::AssertionSuccess()
                          : testing::AssertionFailure() << manifests << " manifests";
  }

  // Each choice replaced by each.
  void replace_each_by_each() const {
    for (const Choice& before : all_choices()) {
      for (const Choice& after : all_choices()) {
        for (const std::uint32_t seed : {1U, 2U}) {  // 1: the same weights again
          const std::string where = text_of(before) + " by " + text_of(after);
          ASSERT_THAT(save(1, before), IsOk()) << where;
          ASSERT_THAT(save(seed, after), IsOk()) << where;
          ASSERT_TRUE(has_the_model_alone()) << where << ", seed " << seed;
          fs::remove_all(out_);
        }
      }
    }
  }

  const TempDir dir_;
  const fs::path out_ = dir_.path() / "out";
};

TEST_F(Leftovers, DoNotRemainWhenAnyModelReplacesAnyOther) {
  replace_each_by_each();
}

TEST_F(Leftovers, DoNotRemainWhereRenamesHaveNoFlags) {
  pretend({.rename_flags = false});
  replace_each_by_each();
}

// So earlier versions wrote a model whose files they had taken over from the one before.
TEST_F(Leftovers, DoNotRemainOfAModelWhoseManifestIsBesideItsFolder) {
  for (const Choice& after : all_choices()) {
    ASSERT_THAT(save(1, {}), IsOk());
    auto manifest = parse_manifest(read_text(out_ / "initializers/manifest.json"));
    ASSERT_THAT(manifest, IsOk());
    for (ManifestTensor& tensor : manifest->tensors) {
      tensor.file = "initializers/" + tensor.file;
    }
    fs::remove(out_ / "initializers/manifest.json");
    dir_.write("out/model.1.manifest.json", manifest_text(*manifest));
    const auto report = verify_model(out_ / "model.onnx");
    ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(report->ok() && report->used_manifest);
    ASSERT_THAT(save(2, after), IsOk());
    EXPECT_TRUE(has_the_model_alone()) << text_of(after);
    fs::remove_all(out_);
  }
}

TEST_F(Leftovers, OfAModelThatACopyRefersToStayWithTheCopy) {
  for (const bool rename_flags : {true, false}) {
    pretend({.rename_flags = rename_flags});
    ASSERT_THAT(save(1, {}), IsOk());
    fs::copy_file(out_ / "model.onnx", out_ / "copy.onnx");
    const auto saved = save(2, {Layout::kPerTensor, "weights"});
    ASSERT_THAT(saved, IsOk());
    EXPECT_EQ(saved->data_left_for.size(), 2U);
    const auto report = verify_model(out_ / "copy.onnx");
    ASSERT_THAT(report, IsOk());
    for (const Finding& finding : report->findings) {
      EXPECT_EQ(finding.code, FindingCode::kModelChanged) << finding_text(finding);
    }
    EXPECT_EQ(report->tensors, 2U);
    fs::remove_all(out_);
  }
}

TEST_F(Leftovers, NeverIncludeFilesOfAnotherFolderWithTheSameName) {
  for (const std::string size_of : {"other", "same"}) {
    ASSERT_THAT(save(1, {}), IsOk());
    const std::string mine(size_of == "same" ? 2400 : 7, 'm');
    dir_.write("out/initializers/note", mine);
    dir_.write("out/initializers/a", size_of == "same" ? noise(2400, 1) : mine);
    ASSERT_THAT(save(2, {Layout::kPerTensor, "weights"}), IsOk());
    EXPECT_EQ(read_text(out_ / "initializers/note"), mine);
    EXPECT_EQ(fs::exists(out_ / "initializers/a"), size_of == "other");
    fs::remove_all(out_);
  }
}

// What tells of them outlives any number of saves that could not remove them.
TEST_F(Leftovers, ThatCouldNotBeRemovedAreRemovedOnceTheyCan) {
  for (const bool rename_flags : {true, false}) {
    pretend({.rename_flags = rename_flags});
    ASSERT_THAT(save(0, {}), IsOk());
    for (std::size_t i = 0; i <= kMaxOtherModels; ++i) {  // then nothing is said of any
      dir_.write("out/other" + std::to_string(i) + ".onnx", "");
    }
    ASSERT_THAT(save(1, {}), IsOk());
    ASSERT_THAT(save(2, {}), IsOk());
    ASSERT_FALSE(has_the_model_alone());
    for (std::size_t i = 0; i <= kMaxOtherModels; ++i) {
      fs::remove(out_ / ("other" + std::to_string(i) + ".onnx"));
    }
    ASSERT_THAT(save(0, {}), IsOk());
    EXPECT_TRUE(has_the_model_alone()) << (rename_flags ? "with" : "without") << " flags";
    fs::remove_all(out_);
  }
}

// The next save removes them, at the latest.
TEST_F(Leftovers, DoNotRemainAfterAnyFailureWhereRenamesHaveNoFlags) {
  for (const Fault fault : {Fault::kFailOnce, Fault::kFailForever}) {
    pretend({.rename_flags = false});
    for (std::size_t nth = 0;; ++nth) {
      ASSERT_THAT(save(0, {}), IsOk());
      inject(fault, nth, EIO);
      (void)save(1, {});
      if (stop_injecting() <= nth) {
        break;
      }
      ASSERT_THAT(save(2, {}), IsOk());
      ASSERT_TRUE(has_the_model_alone()) << "call " << nth;
      fs::remove_all(out_);
    }
    fs::remove_all(out_);
  }
}

}  // namespace
}  // namespace onnx_external
