#include <fmt/format.h>
#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

Result<Checkpoint> open(const std::vector<fs::path>& paths) {
  return open_checkpoint(paths);
}

std::string one_tensor(const std::string& name) {
  return torch_zip({{.name = name, .shape = {1}, .bytes = f32({1})}});
}

TEST(OpenCheckpoint, JoinsArgumentsInOrder) {
  const TempDir dir;
  const auto checkpoint =
      open({dir.write("1.pt", one_tensor("a")), dir.write("2.pt", one_tensor("b"))});
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[1].name, "b");
  EXPECT_EQ(checkpoint->argument_of(1), 1U);
  EXPECT_EQ(checkpoint->storages()[1].file, 1U);
}

TEST(OpenCheckpoint, SaysInWhichFileAndWhereTheBytesOfATensorAre) {
  const TempDir dir;
  ZipBuilder nested;
  nested.add({.name = "serialized_exported_program.json", .data = "{}"});
  nested.add({.name = "serialized_state_dict.pt",
              .data = torch_zip({{.name = "w", .shape = {2}, .bytes = f32({2, 3})}})});
  nested.add({.name = "version", .data = "8.2"});
  const std::vector<fs::path> paths{dir.write("1.pt", one_tensor("a")),
                                    dir.write("2.pt2", nested.finish())};
  const auto checkpoint = open(paths);
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(checkpoint->files().size(), 2U);
  const std::string wanted[] = {f32({1}), f32({2, 3})};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(checkpoint->files()[i], (CheckpointFile{paths[i], fs::file_size(paths[i])}));
    const auto range = checkpoint->plain_range(i);
    ASSERT_TRUE(range && range->file == i);
    EXPECT_EQ(read_text(checkpoint->files()[i].path).substr(range->offset, range->length),
              wanted[i]);
  }
}

TEST(OpenCheckpoint, RefusesOneNameInTwoArguments) {
  const TempDir dir;
  const auto path = dir.write("1.pt", one_tensor("a"));
  EXPECT_THAT(open({path, path}), FailsWith(ErrorCode::kAmbiguous, "tensor 'a' is in"));
  EXPECT_THAT(open({}), FailsWith(ErrorCode::kInvalidArgument, "no checkpoint"));
}

TEST(OpenCheckpoint, LetsLaterArgumentsOverlayEarlierOnes) {
  const TempDir dir;
  const auto base = dir.write("1.pt", torch_zip({{.name = "a", .shape = {1}, .bytes = f32({1})},
                                                 {.name = "b", .shape = {1}, .bytes = f32({2})}}));
  const auto tuned = dir.write("2.pt", torch_zip({{.name = "c", .shape = {1}, .bytes = f32({3})},
                                                  {.name = "a", .shape = {1}, .bytes = f32({4})}}));
  OpenOptions options;
  options.overlay = true;
  const std::vector<fs::path> paths{base, tuned};
  const auto checkpoint = open_checkpoint(paths, options);
  ASSERT_THAT(checkpoint, IsOk());
  std::string names;
  for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    std::string bytes(4, '\0');
    ASSERT_THAT(checkpoint->read(i, 0, std::as_writable_bytes(std::span(bytes))), IsOk());
    names += checkpoint->tensors()[i].name + std::to_string(checkpoint->argument_of(i));
    EXPECT_EQ(bytes, f32({static_cast<float>(i + 2)}));
  }
  EXPECT_EQ(names, "b0c1a1");
  ASSERT_EQ(checkpoint->overlaid().size(), 1U);
  EXPECT_EQ(checkpoint->overlaid()[0].name, "a");
  EXPECT_EQ(checkpoint->overlaid()[0].argument, 0U);
  EXPECT_EQ(checkpoint->overlaid()[0].by, 1U);
}

TEST(OpenCheckpoint, NamesFilesThatGitLfsDidNotFetch) {
  const TempDir dir;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const auto file = dir.write("clone/weights.safetensors", pointer);
  for (const fs::path& path : {file, file.parent_path()}) {
    EXPECT_THAT(open({path}), FailsWith(ErrorCode::kUnsupported,
                                        "weights.safetensors: a Git LFS pointer, not the file"));
  }
  dir.write("clone/real.pt", one_tensor("a"));
  EXPECT_THAT(open({file.parent_path()}), IsOk());
}

TEST(OpenCheckpoint, NamesTheFormatsThatItDoesNotRead) {
  const TempDir dir;
  const auto message = [&](const std::string& bytes) {
    const auto result = open({dir.write("x.pt", bytes)});
    return result ? std::string() : result.error().message;
  };
  using ::testing::HasSubstr;
  using namespace std::string_literals;
  EXPECT_THAT(message("\x1f\x8b\x08\x00"s), HasSubstr("not a checkpoint"));
  EXPECT_THAT(message(""), HasSubstr("empty file"));
  EXPECT_THAT(message("hello"), HasSubstr("known format"));
}

TEST(OpenCheckpoint, TakesTheFirstOfAFoldersUsualFiles) {
  const TempDir dir;
  dir.write("pytorch_model.bin", one_tensor("old"));
  EXPECT_EQ(open({dir.path()})->tensors()[0].name, "old");
  dir.write("model.safetensors", one_tensor("new"));  // told by content, not by name
  EXPECT_EQ(open({dir.path()})->tensors()[0].name, "new");
}

TEST(OpenCheckpoint, ListsTheFilesOfAnAmbiguousFolder) {
  const TempDir dir;
  EXPECT_THAT(open({dir.path()}), FailsWith(ErrorCode::kNotFound, "no checkpoint file"));
  dir.write("config.json", "{}");
  dir.write("a.pt", one_tensor("a"));
  EXPECT_THAT(open({dir.path()}), IsOk());
  dir.write("b.pt", one_tensor("b"));
  EXPECT_THAT(open({dir.path()}), FailsWith(ErrorCode::kAmbiguous, "'a.pt', 'b.pt'"));
}

class ShardIndex : public ::testing::Test {
 protected:
  Result<Checkpoint> open_index(const std::string& weight_map) {
    return open({dir_.write("pytorch_model.bin.index.json",
                            R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}")});
  }
  TempDir dir_;
};

TEST_F(ShardIndex, ReadsShardsInTheOrderOfTheIndex) {
  dir_.write("1.bin", one_tensor("a"));
  dir_.write("2.bin", one_tensor("b"));
  const auto checkpoint = open_index(R"({"b":"2.bin","a":"1.bin"})");
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "sharded torch-zip");
  EXPECT_EQ(checkpoint->tensors()[0].name, "b");
  EXPECT_EQ(checkpoint->argument_of(1), 0U);
}

TEST_F(ShardIndex, RefusesATensorThatItsShardDoesNotHold) {
  dir_.write("1.bin", one_tensor("a"));
  EXPECT_THAT(open_index(R"({"a":"1.bin","lost":"1.bin"})"),
              FailsWith(ErrorCode::kCorrupt, "tensor 'lost' is not in its shard '1.bin'"));
}

TEST_F(ShardIndex, LetsTheMapDecideBetweenTwoShardsAndKeepsUnmentionedTensors) {
  dir_.write("1.bin", torch_zip({{.name = "a", .shape = {1}, .bytes = f32({1})},
                                 {.name = "extra", .shape = {1}, .bytes = f32({3})}}));
  dir_.write("2.bin", torch_zip({{.name = "a", .shape = {1}, .bytes = f32({2})},
                                 {.name = "b", .shape = {1}, .bytes = f32({2})}}));
  const auto checkpoint = open_index(R"({"a":"1.bin","b":"2.bin"})");
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(checkpoint->tensors().size(), 3U);
  EXPECT_EQ(checkpoint->tensors()[0].storage, 0U);
  EXPECT_EQ(checkpoint->tensors()[1].name, "extra");
}

TEST_F(ShardIndex, RefusesAnUnmentionedTensorInTwoShards) {
  const auto shard = [](const std::string& name) {
    return torch_zip({{.name = name, .shape = {1}, .bytes = f32({1})},
                      {.name = "twin", .shape = {1}, .bytes = f32({1})}});
  };
  dir_.write("1.bin", shard("a"));
  dir_.write("2.bin", shard("b"));
  EXPECT_THAT(open_index(R"({"a":"1.bin","b":"2.bin"})"),
              FailsWith(ErrorCode::kCorrupt, "stands in two shards"));
}

TEST_F(ShardIndex, RefusesNamesThatAreNotPlain) {
  for (const char* name : {"../x", "/etc/passwd", "sub/x", "..", "", "a\\\\b", "a\\u0000b"}) {
    EXPECT_FALSE(open_index(R"({"a":")" + std::string(name) + "\"}").has_value()) << name;
  }
}

TEST_F(ShardIndex, RefusesLinksThatLeaveTheFolder) {
  const TempDir other;
  fs::create_symlink(other.write("secret.bin", one_tensor("a")), dir_.path() / "1.bin");
  EXPECT_THAT(open_index(R"({"a":"1.bin"})"),
              FailsWith(ErrorCode::kInvalidArgument, "symbolic link"));
}

TEST_F(ShardIndex, RefusesAMillionShardsBeforeOpeningAny) {
  std::string map = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    map += fmt::format(R"({}"{}":"{}")", i == 0 ? "" : ",", i, i);
  }
  EXPECT_THAT(open_index(map + "}"),
              FailsWith(ErrorCode::kUnsupported, "weight_map names more than 100000 files"));
}

TEST_F(ShardIndex, RefusesFoldersAndMissingShards) {
  fs::create_directory(dir_.path() / "1.bin");
  EXPECT_FALSE(open_index(R"({"a":"1.bin"})").has_value());
  EXPECT_THAT(open_index(R"({"a":"2.bin"})"), FailsWith(ErrorCode::kNotFound, "2.bin"));
}

TEST_F(ShardIndex, RefusesJsonThatIsNoIndex) {
  EXPECT_THAT(open({dir_.write("x.index.json", R"({"a":1})")}),
              FailsWith(ErrorCode::kUnsupported, "not a shard index"));
  EXPECT_THAT(open_index(R"({"a":1})"), FailsWith(ErrorCode::kCorrupt, "is not a string"));
}

TEST_F(ShardIndex, RefusesAByteOrderMarkAndNulBytes) {
  dir_.write("1.bin", one_tensor("a"));
  const std::string index = R"({"weight_map":{"a":"1.bin"}})";
  ASSERT_THAT(open({dir_.write("x.index.json", index)}), IsOk());
  EXPECT_THAT(open({dir_.write("x.index.json", "\xEF\xBB\xBF" + index)}),
              FailsWith(ErrorCode::kCorrupt, "x.index.json: byte 1: a byte order mark"));
  EXPECT_THAT(open({dir_.write("x.index.json", index + '\0' + "more")}),
              FailsWith(ErrorCode::kCorrupt, "x.index.json: byte 29: a NUL byte"));
}

TEST(OpenCheckpoint, FollowsLinksInAHuggingFaceCacheOnly) {
  const TempDir dir;
  dir.write("hub/blobs/abc123", one_tensor("a"));
  fs::create_directories(dir.path() / "hub/snapshots/rev");
  fs::create_directories(dir.path() / "hub/elsewhere/rev");
  for (const char* folder : {"hub/snapshots/rev", "hub/elsewhere/rev"}) {
    fs::create_symlink("../../blobs/abc123", dir.path() / folder / "model.safetensors");
  }
  EXPECT_THAT(open({dir.path() / "hub/snapshots/rev"}), IsOk());
  EXPECT_THAT(open({dir.path() / "hub/snapshots/rev/"}), IsOk());
  EXPECT_THAT(open({dir.path() / "hub/elsewhere/rev"}),
              FailsWith(ErrorCode::kInvalidArgument, "Hugging Face cache"));
}

}  // namespace
}  // namespace onnx_external
