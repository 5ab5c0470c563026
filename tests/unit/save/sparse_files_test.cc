#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/holes.h"
#include "jobs/plan_models.h"
#include "onnx_external/verify.h"
#include "save/make_plan.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

std::uint64_t room(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat info {};
    if (entry.is_regular_file() && ::stat(entry.path().c_str(), &info) == 0) {
      bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return bytes;
}

// A checkpoint with 16 MiB of zeros, most of which are holes.
class SparseCheckpoint : public testing::Test {
 protected:
  SparseCheckpoint() {
    std::string bytes(std::size_t{16} << 20, '\0');
    bytes.replace(std::size_t{5} << 20, 100'000, noise(100'000, 1));
    tensors_ = {{.name = "w", .shape = {1024, 4096}, .bytes = bytes},
                {.name = "dense", .shape = {100, 1000}, .bytes = noise(400'000, 2)},
                {.name = "turned",
                 .shape = {1024, 4096},
                 .strides = std::vector<std::int64_t>{1, 1024},
                 .shares = "w"}};
    const std::string whole = torch_zip(tensors_);
    file_ = dir_.write("dense.pt", whole);
    sparse_ = dir_.path() / "sparse.pt";
    std::ofstream out(sparse_, std::ios::binary);
    constexpr std::size_t kStep = 65'536;
    for (std::size_t at = 0; at < whole.size(); at += kStep) {
      const std::string piece = whole.substr(at, kStep);
      if (piece.find_first_not_of('\0') == std::string::npos && at + kStep < whole.size()) {
        out.seekp(static_cast<std::streamoff>(at + kStep));
      } else {
        out << piece;
      }
    }
    out.close();
    has_holes_ = may_have_holes(**SourceFile::open(sparse_));
  }

  Status save(const fs::path& checkpoint, const fs::path& out, const WriteOptions& options,
              const PlanOptions& layout) {
    Model model = model_for(tensors_);
    return save_all(open_one(checkpoint), model, out, options, layout);
  }

  TempDir dir_;
  std::vector<TestTensor> tensors_;
  fs::path file_;
  fs::path sparse_;
  bool has_holes_ = false;
};

TEST_F(SparseCheckpoint, GivesTheSameFilesAsAFullOneWithHoles) {
  if (!has_holes_) {
    GTEST_SKIP() << "no sparse files here";
  }
  ASSERT_TRUE(read_text(file_) == read_text(sparse_));
  tensors_.pop_back();  // what is rearranged has no holes
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    for (const Checksum checksum : {Checksum::kNone, Checksum::kSha1}) {
      WriteOptions options;
      options.sync = Sync::kNone;
      options.threads = 2;
      options.checksum = checksum;
      ASSERT_THAT(save(file_, dir_.path() / "a", options, {.layout = layout}), IsOk());
      ASSERT_THAT(save(sparse_, dir_.path() / "b", options, {.layout = layout}), IsOk());
      EXPECT_TRUE(tree_of(dir_.path() / "a") == tree_of(dir_.path() / "b"));
      EXPECT_GT(room(dir_.path() / "a"), std::uint64_t{15} << 20);
      EXPECT_LT(room(dir_.path() / "b"), std::uint64_t{3} << 20);
      const auto report = verify_model(dir_.path() / "b/model.onnx");
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->ok());
      fs::remove_all(dir_.path() / "a");
      fs::remove_all(dir_.path() / "b");
    }
  }
}

TEST_F(SparseCheckpoint, HasPlacesThatArePlannedAsHoles) {
  const Checkpoint checkpoint = open_one(sparse_);
  const Model model = model_for(tensors_);
  auto plan = make_plan(model, checkpoint, map_by_name(model, checkpoint), {});
  ASSERT_THAT(plan, IsOk());
  note_holes(open_one(file_), *plan);
  for (const PlannedFile& file : plan->files) {
    EXPECT_EQ(file.hole_bytes, 0U) << file.name;
  }
  note_holes(checkpoint, *plan);
  ASSERT_EQ(plan->files.size(), 3U);
  if (has_holes_) {
    EXPECT_GT(plan->files[0].hole_bytes, std::uint64_t{14} << 20);
  }
  EXPECT_EQ(plan->files[1].hole_bytes + plan->files[2].hole_bytes, 0U);
}

// A hole instead of the data, in a copy of a full checkpoint and the other way round.
TEST_F(SparseCheckpoint, IsComparedWhereOneSideHasAHoleAndTheOtherDoesNot) {
  WriteOptions options;
  options.sync = Sync::kNone;
  tensors_.pop_back();
  const fs::path out = dir_.path() / "out";
  ASSERT_THAT(save(file_, out, options, {}), IsOk());
  fs::remove(out / "initializers/w");
  std::ofstream(out / "initializers/w").close();
  fs::resize_file(out / "initializers/w", std::size_t{16} << 20);
  const auto damaged = verify_model(out / "model.onnx");
  ASSERT_THAT(damaged, IsOk());
  EXPECT_FALSE(damaged->ok());
  std::vector<ExpectedTensor> expected;
  const Checkpoint checkpoint = open_one(file_);
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    if (checkpoint.tensors()[i].name != "turned") {
      expected.push_back({.initializer = checkpoint.tensors()[i].name, .tensor = i});
    }
  }
  const auto against = verify_model_against(out / "model.onnx", open_one(sparse_), expected, {});
  ASSERT_THAT(against, IsOk());
  ASSERT_FALSE(against->ok());
  EXPECT_EQ(against->findings.front().code, FindingCode::kBytesDiffer);
}

}  // namespace
}  // namespace onnx_external
