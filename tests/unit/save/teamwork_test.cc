#include "save/teamwork.h"

#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "base/directory.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Threads instead of processes.
struct Board {
  explicit Board(int size) : texts(static_cast<std::size_t>(size)), meeting(size) {}
  std::vector<std::string> texts;
  std::barrier<> meeting;
};

Team thread_team(Board& board, int rank) {
  const auto from_all = [&board, rank](std::string text) {
    board.texts[static_cast<std::size_t>(rank)] = std::move(text);
    board.meeting.arrive_and_wait();
    std::vector<std::string> all = board.texts;
    board.meeting.arrive_and_wait();
    return all;
  };
  return {rank, static_cast<int>(board.texts.size()), from_all};
}

class TeamOfThree : public testing::Test {
 protected:
  static constexpr int kSize = 3;

  TeamOfThree() { file_ = dir_.write("c.pt", torch_zip(mixed_tensors(1))); }

  // The status of each member.
  std::vector<Status> save(const fs::path& out, const PlanOptions& plan,
                           const WriteOptions& options) {
    Board board(kSize);
    std::vector<Status> ends(kSize);
    std::vector<std::thread> members;
    for (int rank = 0; rank < kSize; ++rank) {
      members.emplace_back([&, rank] {
        const Team team = thread_team(board, rank);
        WriteOptions own = options;
        own.team = &team;
        Model model = model_for(mixed_tensors(1));
        ends[static_cast<std::size_t>(rank)] =
            save_all(open_one(file_of(rank)), model, out, own, plan);
      });
    }
    for (std::thread& member : members) {
      member.join();
    }
    return ends;
  }

  virtual fs::path file_of(int /*rank*/) { return file_; }

  static WriteOptions options() {
    WriteOptions options;
    options.sync = Sync::kNone;
    options.threads = 2;
    options.checksum = Checksum::kSha1;
    return options;
  }

  TempDir dir_;
  fs::path file_;
};

TEST_F(TeamOfThree, WritesWhatOneProcessWrites) {
  const std::vector<PlanOptions> layouts = {
      {}, {.layout = Layout::kSingle}, {.layout = Layout::kShards, .max_shard_bytes = 1'201'000}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const fs::path alone = dir_.path() / ("alone" + std::to_string(i));
    Model model = model_for(mixed_tensors(1));
    ASSERT_THAT(save_all(open_one(file_), model, alone, options(), layouts[i]), IsOk());
    const fs::path together = dir_.path() / ("together" + std::to_string(i));
    for (const Status& end : save(together, layouts[i], options())) {
      EXPECT_THAT(end, IsOk());
    }
    EXPECT_EQ(tree_of(alone), tree_of(together)) << i;
  }
}

TEST_F(TeamOfThree, FailsTogetherWhenTheLeaderCannotBegin) {
  const fs::path out = dir_.path() / "out";
  fs::create_directory(out);
  const auto folder = Directory::open(out);
  ASSERT_THAT(folder, IsOk());
  ASSERT_TRUE(folder->try_lock().value_or(false));
  for (const Status& end : save(out, {}, options())) {
    EXPECT_THAT(end, FailsWith(ErrorCode::kBusy, "another save is writing"));
  }
  EXPECT_TRUE(fs::is_empty(out));
}

TEST_F(TeamOfThree, NamesTheProcessThatFails) {
  // One member's source is damaged: all see the same file, so all fail alike.
  std::string bytes = read_text(file_);
  const std::size_t place = bytes.find(mixed_tensors(1)[0].bytes.substr(0, 64));
  bytes[place + 1] = static_cast<char>(bytes[place + 1] ^ 1);
  file_ = dir_.write("damaged.pt", bytes);
  const fs::path out = dir_.path() / "out";
  for (const Status& end : save(out, {.layout = Layout::kSingle}, options())) {
    EXPECT_THAT(end, FailsWith(ErrorCode::kCorrupt, "of the team"));
  }
  EXPECT_FALSE(fs::exists(out));
}

class TeamWithAStranger : public TeamOfThree {
 protected:
  TeamWithAStranger() { other_ = dir_.write("other.pt", torch_zip(mixed_tensors(2))); }
  fs::path file_of(int rank) override { return rank == 1 ? other_ : file_; }
  fs::path other_;
};

TEST_F(TeamWithAStranger, RefusesMembersThatSeeOtherFiles) {
  const fs::path out = dir_.path() / "out";
  for (const Status& end : save(out, {}, options())) {
    EXPECT_THAT(end,
                FailsWith(ErrorCode::kInvalidArgument, "process 1 of the team: sees other files"));
  }
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace onnx_external
