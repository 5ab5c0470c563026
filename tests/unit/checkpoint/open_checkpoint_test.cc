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

TEST(OpenCheckpoint, DoesNotTreatPartsOfRanksAsDuplicates) {
  const TempDir dir;
  const auto one = dir.write("parts/consolidated.00.pth", one_tensor("a"));
  const auto two = dir.write("parts/consolidated.01.pth", one_tensor("a"));
  const std::string words = "are parts of one checkpoint, one for each rank; join the parts first";
  const auto given = open({one, two});
  ASSERT_THAT(given, FailsWith(ErrorCode::kUnsupported, words));
  EXPECT_EQ(given.error().details, nullptr);
  EXPECT_THAT(open({dir.path() / "parts"}), FailsWith(ErrorCode::kUnsupported, words));
}

TEST(OpenCheckpoint, PassesOverTheStatesOfATrainingBesideTheWeights) {
  const TempDir dir;
  dir.write("optimizer.pt", one_tensor("exp_avg"));
  EXPECT_THAT(open({dir.path()}),
              FailsWith(ErrorCode::kNotFound, "'optimizer.pt' is training state"));
  dir.write("weights.pt", one_tensor("a"));
  const auto checkpoint = open({dir.path()});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("a"));
}

TEST(OpenCheckpoint, IgnoresBytesAfterAnArchiveWithANote) {
  const TempDir dir;
  const auto checkpoint = open({dir.write("a.pt", one_tensor("a") + "tail")});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->notes(),
              ElementsAre(::testing::HasSubstr("a.pt: 4 bytes after the zip archive are not")));
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
  EXPECT_THAT(message("\x1f\x8b\x08\x00"s), HasSubstr("x.pt: compressed with gzip; unpack it"));
  EXPECT_THAT(message(""), HasSubstr("empty file"));
  EXPECT_THAT(message("hello"), HasSubstr("text that begins with 'hello'"));
  EXPECT_THAT(message("\x91\x92\x93"s), HasSubstr("known format"));
  EXPECT_THAT(message(std::string(600, '\0')), HasSubstr("begins with zeros, like a file whose"));
  EXPECT_THAT(message("PK\x03\x04" + std::string(600, '\0')), HasSubstr("ends with zeros"));
  EXPECT_THAT(message("\xff\xfe{\0"s), HasSubstr("text in UTF-16"));
  EXPECT_THAT(message("\x78\x9c\x91\0\x01\x02\x03"s),
              HasSubstr("compressed by zlib, as joblib does"));
  EXPECT_THAT(message("\x08\x08\x12\x07pytorch"s), HasSubstr("an ONNX model, not a checkpoint"));
  EXPECT_THAT(message(R"({"error": "Repository not found"})"),
              HasSubstr("a server's error message, 'Repository not found'"));
  EXPECT_THAT(message(R"({"error": {"code": 404, "message": "gone"}})"),
              HasSubstr("a server's error message, 'gone'"));
  EXPECT_THAT(message(R"({"model_type": "bert"})"), HasSubstr("the config of a model"));
  EXPECT_THAT(message(R"({"a": 1})"), HasSubstr("not a shard index"));
}

TEST(OpenCheckpoint, NamesTheContentsOfAnArchiveThatIsNotACheckpoint) {
  const TempDir dir;
  const auto zip_of = [](const std::vector<std::string>& names) {
    ZipBuilder zip;
    for (const std::string& name : names) {
      zip.add({.name = name, .data = "{}"});
    }
    return zip.finish();
  };
  EXPECT_THAT(open({dir.write("a.npz", zip_of({"a.npy", "b.npy"}))}),
              FailsWith(ErrorCode::kUnsupported, "NumPy arrays"));
  EXPECT_THAT(
      open({dir.write("flat.pt", zip_of({"data/0", "data.pkl", "version"}))}),
      FailsWith(ErrorCode::kUnsupported, "repacked without its folder: 'data.pkl' is at the root"));
  EXPECT_THAT(open({dir.write("deep.pt", zip_of({"out/m/data.pkl", "out/m/version"}))}),
              FailsWith(ErrorCode::kUnsupported, "with another folder around its own"));
  EXPECT_THAT(
      open({dir.write("m.zip", zip_of({"m/config.json", "m/model.safetensors"}))}),
      FailsWith(ErrorCode::kUnsupported,
                "it contains 'm/config.json', 'm/model.safetensors'; if the checkpoint is"));
}

TEST(OpenCheckpoint, SaysWhatAFolderHasInsteadOfACheckpoint) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("README.md", "Some words.");
  EXPECT_THAT(open({dir.path()}), FailsWith(ErrorCode::kNotFound, "no checkpoint file"));
  dir.write("part/config.json", "{}");
  EXPECT_THAT(open({dir.path()}), FailsWith(ErrorCode::kNotFound, "its folders are 'part'"));
  dir.write("flax_model.msgpack", "\x81");
  EXPECT_THAT(open({dir.path()}),
              FailsWith(ErrorCode::kNotFound, "'flax_model.msgpack' is MessagePack"));
  dir.write("model.safetensors.xz", std::string("\xfd\x37zXZ\0", 6));
  EXPECT_THAT(open({dir.path()}), FailsWith(ErrorCode::kUnsupported, "compressed with xz"));
}

// A folder of the Hub has config.json; python/tests/folders/test_folder_layouts.py compares the
// choice with transformers' own.
class Folder : public ::testing::Test {
 protected:
  // The name of the only tensor, which tells which file was read.
  [[nodiscard]] std::string taken(const std::string& variant = "") const {
    OpenOptions options;
    options.variant = variant;
    const std::vector<fs::path> paths{dir_.path()};
    const auto checkpoint = open_checkpoint(paths, options);
    EXPECT_TRUE(checkpoint || checkpoint.error().message.find(dir_.path().string()) == 0)
        << checkpoint.error().message;
    return checkpoint ? checkpoint->tensors()[0].name : checkpoint.error().message;
  }
  void write(const std::string& name) { dir_.write(name, one_tensor(name)); }
  void configure(const std::string& json) { dir_.write("config.json", json); }
  TempDir dir_;
};

TEST_F(Folder, GivesTheFirstOfTheFilesThatTransformersLooksFor) {
  write("shard.bin");
  const std::string map = R"({"weight_map":{"shard.bin":"shard.bin"}})";
  EXPECT_EQ(taken(), "shard.bin");  // the only checkpoint
  dir_.write("pytorch_model.bin.index.json", map);
  EXPECT_EQ(taken(), "shard.bin");
  write("pytorch_model.bin");
  EXPECT_EQ(taken(), "pytorch_model.bin");
  dir_.write("model.safetensors.index.json", map);
  EXPECT_EQ(taken(), "shard.bin");
  write("model.safetensors");  // told by content, not by name
  EXPECT_EQ(taken(), "model.safetensors");
}

TEST_F(Folder, IsReadDespiteAStaleIndexWithANote) {
  write("model.safetensors");
  dir_.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_EQ(taken(), "model.safetensors");
  EXPECT_THAT(
      open({dir_.path()})->notes(),
      ::testing::ElementsAre((dir_.path() / "model.safetensors").string() +
                             " is read, as in transformers; 'model.safetensors.index.json', "
                             "the shard index next to it, is not (remove it if it is obsolete)"));
}

TEST_F(Folder, GivesFilesOfAVariantOnlyIfItIsNamed) {
  using ::testing::HasSubstr;
  write("model.fp16.safetensors");
  EXPECT_THAT(taken(),
              HasSubstr("the folder has only files of variants: 'model.fp16.safetensors'"));
  EXPECT_EQ(taken("fp16"), "model.fp16.safetensors");
  EXPECT_THAT(taken("bf16"), HasSubstr("no file for the variant 'bf16'"));
  EXPECT_THAT(taken("../x"), HasSubstr("variant: 'model.../x.safetensors': contains a slash"));
  write("model.safetensors");
  EXPECT_EQ(taken(), "model.safetensors");
}

TEST_F(Folder, GivesTheFileThatItsConfigurationNames) {
  write("model.safetensors");
  write("other.safetensors");
  fs::create_directory(dir_.path() / "sub");
  dir_.write("sub/inner.safetensors", one_tensor("inner"));
  for (const auto& [json, name] : {
           std::pair(R"({"transformers_weights": "other.safetensors"})", "other.safetensors"),
           {R"({"transformers\u005fweights": "other.safetensors"})", "other.safetensors"},
           {R"({"transformers_weights": "./other.safetensors"})", "other.safetensors"},
           {R"({"transformers_weights": "sub/inner.safetensors"})", "inner"},
           {R"({"transformers_weights": null})", "model.safetensors"},
           {R"({"part": {"transformers_weights": "other.safetensors"}})", "model.safetensors"},
           {R"({"transformers_weight": 1, "limit": Infinity})", "model.safetensors"},
           {"no JSON at all", "model.safetensors"},
           {"", "model.safetensors"},
       }) {
    configure(json);
    EXPECT_EQ(taken(), name) << json;
  }
}

TEST_F(Folder, RefusesHostileConfigurations) {
  using ::testing::HasSubstr;
  write("model.safetensors");
  const TempDir other;
  fs::create_symlink(other.write("w.safetensors", one_tensor("secret")),
                     dir_.path() / "link.safetensors");
  fs::create_symlink(other.path(), dir_.path() / "away");
  fs::create_directory(dir_.path() / "folder.safetensors");
  for (const char* value : {"\"../../etc/passwd\"",
                            "\"/etc/passwd.safetensors\"",
                            "\"../w.safetensors\"",
                            "\"a/../model.safetensors\"",
                            "\"a\\\\b.safetensors\"",
                            "\"\\u0000.safetensors\"",
                            "\".//../x.safetensors\"",
                            "\"link.safetensors\"",
                            "\"away/w.safetensors\"",
                            "\"folder.safetensors\"",
                            "\"gone.safetensors\"",
                            "\"model.bin\"",
                            "\"\"",
                            "\".safetensors/\"",
                            "7",
                            "-1.5",
                            "true",
                            "[]",
                            "[\"model.safetensors\"]",
                            "{}"}) {
    configure(std::string(R"({"transformers_weights": )") + value + "}");
    EXPECT_THAT(taken(), HasSubstr("config.json")) << value;
  }
  for (const std::string& json :
       {std::string(R"({"transformers_weights": "a.safetensors", "transformers_weights": null})"),
        std::string(R"({"transformers_weights": "a.safetensors")"),
        std::string(1 << 20, '[') + "transformers_weights",
        "\xEF\xBB\xBF" + std::string(R"({"transformers_weights": null})")}) {
    configure(json);
    EXPECT_THAT(taken(), ::testing::ContainsRegex("config.json: (byte|the key|nested deeper)"))
        << json.substr(0, 60);
  }
}

TEST_F(Folder, RefusesToGuessBetweenConfigurationsForVersionsOfTransformers) {
  using ::testing::HasSubstr;
  write("model.safetensors");
  configure(R"({"configuration_files": ["config.json", "config.4.0.0.json", "../x", "gone", 7]})");
  EXPECT_EQ(taken(), "model.safetensors");
  dir_.write("config.4.0.0.json", R"({"model_type": "bert"})");
  EXPECT_EQ(taken(), "model.safetensors");
  dir_.write("config.4.0.0.json", R"({"transformers_weights": "other.safetensors"})");
  EXPECT_THAT(taken(), HasSubstr("config.4.0.0.json: may refer to transformers_weights"));
}

TEST_F(Folder, RefusesAHugeConfigurationWithoutReadingIt) {
  write("model.safetensors");
  configure("{}");
  fs::resize_file(dir_.path() / "config.json", std::uint64_t{1} << 40);
  EXPECT_THAT(open({dir_.path()}), FailsWith(ErrorCode::kUnsupported, "config.json"));
}

TEST_F(Folder, SkipsEntriesThatAreNotFilesWithANote) {
  using ::testing::HasSubstr;
  fs::create_symlink("gone", dir_.path() / "model.safetensors");
  EXPECT_THAT(taken(),
              HasSubstr("a link to a file that does not exist; was the download interrupted?"));
  write("pytorch_model.bin");
  EXPECT_EQ(taken(), "pytorch_model.bin");
  EXPECT_THAT(open({dir_.path()})->notes(),
              ::testing::ElementsAre(HasSubstr(
                  "'model.safetensors', which is not a file or is a broken link, is not")));
}

TEST_F(Folder, RefusesAPartOfACheckpoint) {
  using ::testing::HasSubstr;
  write("model-00002-of-00003.safetensors");
  EXPECT_THAT(taken(), HasSubstr("is one of several shards, but their index is missing"));
  write("model.safetensors");
  EXPECT_EQ(taken(), "model.safetensors");
  write("shard-00001-model-00001-of-00002.safetensors");
  EXPECT_THAT(taken(), HasSubstr("is a shard that distributed training wrote"));
}

TEST_F(Folder, MayHaveAsItsOnlyCheckpointOneShardOfOne) {
  write("model-00001-of-00001.safetensors");
  EXPECT_EQ(taken(), "model-00001-of-00001.safetensors");
}

TEST_F(Folder, IsNeededForAVariant) {
  OpenOptions options;
  options.variant = "fp16";
  const std::vector<fs::path> paths{dir_.write("model.fp16.safetensors", one_tensor("a"))};
  EXPECT_THAT(open_checkpoint(paths, options),
              FailsWith(ErrorCode::kInvalidArgument, "is not a folder, so the variant 'fp16'"));
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

// The names of the tensors, each with its first value, in order.
std::string values_of(const Checkpoint& checkpoint) {
  std::string text;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    float value = 0;
    EXPECT_THAT(checkpoint.read(i, 0, std::as_writable_bytes(std::span(&value, 1))), IsOk());
    text += fmt::format("{}{} ", checkpoint.tensors()[i].name, value);
  }
  return text;
}

TEST_F(ShardIndex, TakesTheLastOfSeveralShardsAsTransformersDoesAndKeepsUnmentionedTensors) {
  dir_.write("1.bin", torch_zip({{.name = "a", .shape = {1}, .bytes = f32({1})},
                                 {.name = "extra", .shape = {1}, .bytes = f32({3})}}));
  dir_.write("2.bin", torch_zip({{.name = "a", .shape = {1}, .bytes = f32({2})},
                                 {.name = "b", .shape = {1}, .bytes = f32({4})}}));
  for (const char* map : {R"({"a":"1.bin","b":"2.bin"})", R"({"b":"2.bin","a":"1.bin"})"}) {
    const auto checkpoint = open_index(map);
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_THAT(values_of(*checkpoint), ::testing::AnyOf("extra3 a2 b4 ", "a2 b4 extra3 "));
    EXPECT_THAT(checkpoint->notes(),
                ::testing::ElementsAre(::testing::HasSubstr(
                    "several shards contain 'a'; as in transformers, the last")));
  }
  dir_.write("1.bin", one_tensor("c"));
  EXPECT_THAT(open_index(R"({"a":"1.bin","b":"2.bin","c":"1.bin"})"),
              FailsWith(ErrorCode::kCorrupt, "tensor 'a' is not in its shard '1.bin'"));
  EXPECT_THAT(open_index(R"({"a":"2.bin","c":"1.bin"})")->notes(), ::testing::IsEmpty());
}

TEST_F(ShardIndex, RefusesAnUnmentionedTensorInTwoShards) {
  const auto shard = [](const std::string& name) {
    return torch_zip({{.name = name, .shape = {1}, .bytes = f32({1})},
                      {.name = "twin", .shape = {1}, .bytes = f32({1})}});
  };
  dir_.write("1.bin", shard("a"));
  dir_.write("2.bin", shard("b"));
  EXPECT_THAT(open_index(R"({"a":"1.bin","b":"2.bin"})"),
              FailsWith(ErrorCode::kCorrupt, "is in two shards"));
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

TEST_F(ShardIndex, RejectsJsonThatIsNotAnIndex) {
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

TEST(OpenCheckpoint, FollowsLinksInAFolderOfAHuggingFaceCacheToItsBlobsOnly) {
  const TempDir dir;
  dir.write("hub/blobs/abc123", one_tensor("a"));
  dir.write("hub/snapshots/blobs/abc123", one_tensor("b"));
  const fs::path part = dir.path() / "hub/snapshots/rev/part";
  fs::create_directories(part);
  fs::create_symlink("../../../blobs/abc123", part / "model.safetensors");
  EXPECT_EQ(open({part})->tensors()[0].name, "a");
  for (const char* target :
       {"../../blobs/abc123", "../../../../hub/blobs/abc123", "../../../blobs/../blobs/abc123"}) {
    fs::remove(part / "model.safetensors");
    fs::create_symlink(target, part / "model.safetensors");
    EXPECT_THAT(open({part}), FailsWith(ErrorCode::kInvalidArgument, "Hugging Face cache"));
  }
}

}  // namespace
}  // namespace onnx_external
