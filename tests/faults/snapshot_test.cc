// Readers and writers of one folder at the same time, and saves over the very files they read.
#include <gtest/gtest.h>

#include <csignal>

#include "faults/scene.h"
#include "inspect/inspect.h"
#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Saves one checkpoint after another into one folder until it is told to stop.
class BusySaver {
 public:
  BusySaver(const Scene& scene, const fs::path& out, const Form& form) : child_(::fork()) {
    for (std::uint32_t i = 0; child_ == 0; ++i) {
      (void)scene.save({out, 1 + i % kSeeds, form});
    }
  }
  BusySaver(const BusySaver&) = delete;
  BusySaver& operator=(const BusySaver&) = delete;
  ~BusySaver() {
    if (child_ > 0) {  // -1 would be everyone
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }

 private:
  pid_t child_;
};

class Snapshots : public testing::TestWithParam<Form> {
 protected:
  TempDir dir_;
  const Scene scene_{dir_.path() / "scene"};
  const fs::path out_ = dir_.path() / "out";
};

TEST_P(Snapshots, AreConsistentWhileOthersSave) {
  ASSERT_THAT(scene_.save({out_, 1, GetParam()}), IsOk());
  const BusySaver saver(scene_, out_, GetParam());
  std::string first = read_text(out_ / "model.onnx");
  int models = 0;
  for (int i = 0; i < 100 || models < 5; ++i) {
    ASSERT_EQ(fault_of_model(out_), "") << i;
    const std::vector<fs::path> paths{out_ / "model.onnx"};
    InspectOptions options;
    options.digests = Digests::kSha256;
    options.threads = 1;
    ASSERT_THAT(inspect(paths, options), IsOk()) << i;
    std::string now = read_text(out_ / "model.onnx");
    models += now == first ? 0 : 1;
    first = std::move(now);
  }
}

TEST_P(Snapshots, OfAModelThatIsSavedOverItselfAreComplete) {
  ASSERT_THAT(scene_.save({out_, 1, GetParam()}), IsOk());
  SaveOptions options;
  options.open.threads = 1;
  options.write.threads = 1;
  options.write.overwrite = Overwrite::kAllow;
  options.plan.layout = GetParam().layout;
  const std::vector<fs::path> checkpoint{scene_.checkpoint(2)};
  for (int i = 0; i < 3; ++i) {
    const auto saved = save_graph_with_external_data(out_, "model.onnx", "initializers", checkpoint,
                                                     out_ / "model.onnx", options);
    ASSERT_THAT(saved, IsOk());
    ASSERT_EQ(fault_of_model(out_), "");
  }
}

TEST_P(Snapshots, KeepACheckpointThatLiesBesideTheModel) {
  fs::create_directories(out_ / "initializers");
  const fs::path checkpoint = out_ / "initializers" / "model.data";
  fs::copy_file(scene_.checkpoint(1), checkpoint);
  const std::string before = read_text(checkpoint);
  SaveOptions options;
  options.open.threads = 1;
  options.write.threads = 1;
  options.write.overwrite = Overwrite::kAllow;
  options.plan.layout = GetParam().layout;
  for (int i = 0; i < 3; ++i) {
    const auto saved =
        save_graph_with_external_data(out_, "model.onnx", "initializers",
                                      std::vector<fs::path>{checkpoint}, scene_.graph(), options);
    ASSERT_THAT(saved, IsOk());
    ASSERT_EQ(fault_of_model(out_), "");
  }
  EXPECT_EQ(read_text(checkpoint), before);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Snapshots,
                         testing::Values(Form{"perTensor", Layout::kPerTensor, Sync::kNone},
                                         Form{"single", Layout::kSingle, Sync::kNone},
                                         Form{"shards", Layout::kShards, Sync::kNone}),
                         [](const auto& layout) { return layout.param.name; });

}  // namespace
}  // namespace onnx_external
