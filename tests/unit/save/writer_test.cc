#include "onnx_external/writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <iterator>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/text.h"
#include "save/plan_copier.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

WriteOptions replacing() {
  WriteOptions options = fast();
  options.overwrite = Overwrite::kAllow;
  return options;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

class Writer : public testing::Test {
 protected:
  fs::path checkpoint_file(std::uint32_t seed, const std::string& name = "c.pt") {
    return dir_.write(name, torch_zip(mixed_tensors(seed)));
  }
  Status save(std::uint32_t seed, const WriteOptions& options, const PlanOptions& layout = {}) {
    const Checkpoint checkpoint = open_one(checkpoint_file(seed));
    Model model = model_for(mixed_tensors(seed));
    return save_all(checkpoint, model, out_, options, layout);
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

TEST_F(Writer, WritesEveryTensorsBytes) {
  ASSERT_THAT(save(1, fast()), IsOk());
  const auto tensors = mixed_tensors(1);
  const fs::path data = out_ / "initializers";
  EXPECT_EQ(read_text(data / "large.weight"), tensors[0].bytes);
  EXPECT_EQ(read_text(data / "part"), tensors[0].bytes.substr(20'000, 40'000));
  const std::string turned = read_text(data / "turned");
  ASSERT_EQ(turned.size(), 4800U);
  for (std::size_t row = 0; row < 40; ++row) {
    for (std::size_t column = 0; column < 30; ++column) {
      ASSERT_EQ(turned.substr(4 * (row * 30 + column), 4),
                tensors[5].bytes.substr(4 * (column * 40 + row), 4));
    }
  }
  EXPECT_TRUE(is_complete(out_));
}

TEST_F(Writer, LeavesTheGivenModelUnchanged) {
  const Checkpoint checkpoint = open_one(checkpoint_file(1));
  const fs::path graph = dir_.write("graph.onnx", model_for(mixed_tensors(1)).serialize().value());
  const auto model = Model::load(graph);
  ASSERT_THAT(model, IsOk());
  const std::string before = model->serialize().value();
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kInline}) {
    const fs::path out = out_ / std::to_string(static_cast<int>(layout));
    for (const char* name : {"first", "second"}) {
      ASSERT_THAT(save_all(checkpoint, *model, out / name, fast(), {.layout = layout}), IsOk());
      EXPECT_EQ(model->serialize().value(), before);
    }
    EXPECT_EQ(tree_of(out / "first"), tree_of(out / "second"));
    EXPECT_TRUE(is_complete(out / "second"));
  }
}

TEST_F(Writer, RefersToTheFilesFromTheModel) {
  ASSERT_THAT(save(1, fast()), IsOk());
  const auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  std::map<std::string, ExternalTensor> external;
  for (const ExternalTensor& tensor : model->external_tensors()) {
    external[tensor.name] = tensor;
  }
  EXPECT_EQ(external.size(), 6U);
  EXPECT_EQ(external["tied.weight"].location, "initializers/large.weight");
  EXPECT_EQ(external["large.weight"].location, "initializers/large.weight");
  EXPECT_EQ(external["part"].length, 40'000U);
  EXPECT_NE(ascii_lower(external["small.bias"].location),
            ascii_lower(external["Small.Bias"].location));
  for (const auto& initializer : model->proto().graph().initializer()) {
    if (initializer.name() == "steps") {
      EXPECT_EQ(initializer.raw_data(), mixed_tensors(1)[6].bytes);
    }
  }
}

TEST_F(Writer, WritesTheSameWithOneThreadAndWithEight) {
  WriteOptions options;
  options.threads = 1;
  ASSERT_THAT(save(1, options), IsOk());
  const auto one = tree_of(out_);
  out_ = dir_.path() / "eight";
  options.threads = 8;
  options.sync = Sync::kNone;
  ASSERT_THAT(save(1, options), IsOk());
  EXPECT_EQ(one, tree_of(out_));
}

TEST_F(Writer, WritesHundredsOfSmallFilesTheSameForAnyNumberOfThreads) {
  std::vector<TestTensor> tensors;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const std::uint32_t bytes = i % 7 == 0 ? 0 : 4 * (1 + i);
    tensors.push_back({.name = "w" + std::to_string(i),
                       .shape = {static_cast<std::int64_t>(bytes / 4)},
                       .bytes = noise(bytes, i)});
  }
  const fs::path file = dir_.write("c.pt", torch_zip(tensors));
  for (const int threads : {1, 2, 8}) {
    out_ = dir_.path() / std::to_string(threads);
    Model model = model_for(tensors);
    WriteOptions options = fast();
    options.threads = threads;
    ASSERT_THAT(save_all(open_one(file), model, out_, options), IsOk());
    for (const TestTensor& tensor : tensors) {
      if (!tensor.bytes.empty()) {
        EXPECT_EQ(read_text(out_ / "initializers" / tensor.name), tensor.bytes) << tensor.name;
      }
    }
  }
  EXPECT_EQ(tree_of(dir_.path() / "1"), tree_of(dir_.path() / "2"));
  EXPECT_EQ(tree_of(dir_.path() / "1"), tree_of(dir_.path() / "8"));
}

// Whichever thread meets the damage first: the error is that of the first step that has some.
TEST_F(Writer, NamesTheSameDamagedSmallTensorForAnyNumberOfThreads) {
  std::vector<TestTensor> tensors;
  for (std::uint32_t i = 0; i < 100; ++i) {
    tensors.push_back({.name = "w" + std::to_string(i), .shape = {25}, .bytes = noise(100, i)});
  }
  std::string damaged = torch_zip(tensors);
  for (const std::size_t i : {40U, 70U, 95U}) {
    damaged[damaged.find(tensors[i].bytes)] ^= 1;
  }
  const fs::path file = dir_.write("c.pt", damaged);
  std::set<std::string> messages;
  for (const int threads : {1, 2, 8, 8, 8}) {
    Model model = model_for(tensors);
    WriteOptions options = fast();
    options.threads = threads;
    const auto saved = save_all(open_one(file), model, out_, options);
    ASSERT_THAT(saved, FailsWith(ErrorCode::kCorrupt, "the file is damaged"));
    messages.insert(saved.error().message);
    EXPECT_FALSE(fs::exists(out_ / "initializers"));
  }
  EXPECT_EQ(messages.size(), 1U);
}

TEST_F(Writer, CopiesALargeTensorInChunks) {
  const std::size_t size = 2 * kCopyChunkBytes + 12'345 * 4;
  const std::vector<TestTensor> tensors{
      {.name = "w", .shape = {static_cast<std::int64_t>(size / 4)}, .bytes = noise(size, 3)}};
  for (const bool with_crc : {true, false}) {
    const fs::path file = dir_.write("c.pt", torch_zip(tensors, {.with_crc = with_crc}));
    out_ = dir_.path() / (with_crc ? "spliced" : "buffered");
    Model model = model_for(tensors);
    WriteOptions options = fast();
    options.threads = 3;
    ASSERT_THAT(save_all(open_one(file), model, out_, options), IsOk());
    EXPECT_TRUE(read_text(out_ / "initializers/w") == tensors[0].bytes);
    EXPECT_TRUE(is_complete(out_));
  }
}

PlanOptions single() {
  return {.layout = Layout::kSingle};
}
// Two shards of mixed_tensors().
PlanOptions shards() {
  return {.layout = Layout::kShards, .max_shard_bytes = 1'201'000};
}

using Names = std::vector<std::string>;

// Every tensor of the saved model stands where the model says, and all other bytes are zero.
void expect_same_bytes(const fs::path& one_file_each, const fs::path& out) {
  const auto wanted = Model::load(one_file_each / "model.onnx");
  const auto model = Model::load(out / "model.onnx");
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->external_tensors().size(), wanted->external_tensors().size());
  auto files = tree_of(out);
  for (std::size_t i = 0; i < model->external_tensors().size(); ++i) {
    const ExternalTensor& tensor = model->external_tensors()[i];
    const std::string& file = files.at(tensor.location);
    const std::string bytes = read_text(one_file_each / wanted->external_tensors()[i].location);
    ASSERT_LE(tensor.offset + tensor.length, file.size());
    EXPECT_TRUE(file.substr(tensor.offset, tensor.length) == bytes) << tensor.name;
  }
  for (const ExternalTensor& tensor : model->external_tensors()) {
    files.at(tensor.location).replace(tensor.offset, tensor.length, tensor.length, '\0');
  }
  for (const ExternalTensor& tensor : model->external_tensors()) {
    EXPECT_EQ(files.at(tensor.location).find_first_not_of('\0'), std::string::npos);
  }
}

TEST_F(Writer, WritesEveryTensorsBytesIntoSharedFilesTheSameForAnyNumberOfThreads) {
  ASSERT_THAT(save(1, fast()), IsOk());
  const fs::path one_file_each = out_;
  for (const PlanOptions& layout : {single(), shards()}) {
    std::map<std::string, std::string> first;
    for (const int threads : {1, 2, 5}) {
      out_ = dir_.path() / std::to_string(static_cast<int>(layout.layout) * 10 + threads);
      WriteOptions options = fast();
      options.threads = threads;
      ASSERT_THAT(save(1, options, layout), IsOk());
      EXPECT_TRUE(is_complete(out_));
      expect_same_bytes(one_file_each, out_);
      const auto tree = tree_of(out_);
      EXPECT_EQ(threads == 1 ? tree : first, tree);
      first = threads == 1 ? tree : first;
    }
  }
  EXPECT_EQ(names_in(out_), (Names{"model-00001-of-00002.data", "model-00002-of-00002.data",
                                   "model.manifest.json", "model.onnx"}));
}

TEST_F(Writer, RecordsTheSha1OfSharedFiles) {
  WriteOptions options = fast();
  options.checksum = Checksum::kSha1;
  ASSERT_THAT(save(1, options, shards()), IsOk());
  const auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  int checked = 0;
  for (const auto& initializer : model->proto().graph().initializer()) {
    std::map<std::string, std::string> entry;
    for (const auto& pair : initializer.external_data()) {
      entry[pair.key()] = pair.value();
    }
    if (!entry.empty()) {
      const std::string content = read_text(out_ / entry["location"]);
      Sha sha(Sha::Kind::kSha1);
      sha.update(std::as_bytes(std::span(content)));
      EXPECT_EQ(entry["checksum"], sha.hex());
      ++checked;
    }
  }
  EXPECT_EQ(checked, 6);
}

TEST_F(Writer, CopiesALargeTensorIntoASharedFileInChunks) {
  const std::size_t size = kCopyChunkBytes + 12'345 * 4;
  const std::vector<TestTensor> tensors{
      {.name = "small", .shape = {1}, .bytes = noise(4, 1)},
      {.name = "w", .shape = {static_cast<std::int64_t>(size / 4)}, .bytes = noise(size, 3)}};
  for (const bool with_crc : {true, false}) {
    const fs::path file = dir_.write("c.pt", torch_zip(tensors, {.with_crc = with_crc}));
    out_ = dir_.path() / (with_crc ? "spliced" : "buffered");
    Model model = model_for(tensors);
    WriteOptions options = fast();
    options.threads = 3;
    ASSERT_THAT(save_all(open_one(file), model, out_, options, single()), IsOk());
    EXPECT_TRUE(read_text(out_ / "model.data").substr(kPageAlignment) == tensors[1].bytes);
    EXPECT_TRUE(is_complete(out_));
  }
}

TEST_F(Writer, ReplacesAModelOfAnyLayoutByOneOfAnyOther) {
  ASSERT_THAT(save(1, replacing(), single()), IsOk());
  EXPECT_EQ(names_in(out_), (Names{"model.data", "model.manifest.json", "model.onnx"}));
  ASSERT_THAT(save(2, replacing(), shards()), IsOk());
  EXPECT_EQ(names_in(out_), (Names{"model.1-00001-of-00002.data", "model.1-00002-of-00002.data",
                                   "model.1.manifest.json", "model.onnx"}));
  ASSERT_THAT(save(3, replacing()), IsOk());
  EXPECT_EQ(names_in(out_).size(), 8U);
  EXPECT_TRUE(fs::exists(out_ / "initializers.2/part"));
  ASSERT_THAT(save(4, replacing(), single()), IsOk());
  EXPECT_EQ(names_in(out_), (Names{"model.3.data", "model.3.manifest.json", "model.onnx"}));
  EXPECT_TRUE(is_complete(out_));
}

TEST_F(Writer, ReplacesTheModelWhoseDataItReads) {
  ASSERT_THAT(save(1, fast(), single()), IsOk());
  const auto before = tree_of(out_);
  auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  const std::vector<TestTensor> none{{.name = "unused", .shape = {1}, .bytes = noise(4, 9)}};
  const Checkpoint checkpoint = open_one(dir_.write("none.pt", torch_zip(none)));
  ASSERT_THAT(save_all(checkpoint, *model, out_, replacing(), single()), IsOk());
  EXPECT_EQ(names_in(out_), (Names{"model.1.data", "model.1.manifest.json", "model.onnx"}));
  EXPECT_TRUE(is_complete(out_));
  EXPECT_EQ(read_text(out_ / "model.1.data").size(), before.at("model.data").size());
}

TEST_F(Writer, LeavesDataFilesThatAreNotOfTheReplacedModelAlone) {
  ASSERT_THAT(save(1, fast(), single()), IsOk());
  for (const char* name : {"model.data.txt", "other.data", "model.7.data", "model-1.data"}) {
    dir_.write(std::string("out/") + name, "mine");
  }
  std::string manifest = read_text(out_ / "model.manifest.json");
  const std::string listed = "\"file\": \"model.data\"";
  // A manifest that lists what it has no business with.
  manifest.replace(manifest.find(listed), listed.size(), "\"file\": \"other.data\"");
  manifest.replace(manifest.find(listed), listed.size(), "\"file\": \"model.7.data\"");
  dir_.write("out/model.manifest.json", manifest);
  ASSERT_THAT(save(2, replacing(), single()), IsOk());
  EXPECT_EQ(names_in(out_),
            (Names{"model-1.data", "model.7.data", "model.8.data", "model.8.manifest.json",
                   "model.data.txt", "model.onnx", "other.data"}));
}

TEST_F(Writer, RefusesADataFileThatIsInTheWay) {
  dir_.write("out/model-00001-of-00007.data", "mine");
  EXPECT_THAT(save(1, fast(), single()),
              FailsWith(ErrorCode::kAlreadyExists, "model-00001-of-00007.data: exists"));
  EXPECT_THAT(save(1, fast()), IsOk());
}

TEST_F(Writer, IsInvisibleUntilItIsPublished) {
  const Checkpoint checkpoint = open_one(checkpoint_file(1));
  Model model = model_for(mixed_tensors(1));
  {
    const auto staged = stage(checkpoint, model, out_, fast());
    ASSERT_THAT(staged, IsOk());
    EXPECT_TRUE(fs::exists(staged->model_path()));
    EXPECT_TRUE(fs::exists(staged->directory() / "initializers/part"));
    EXPECT_FALSE(fs::exists(out_ / "model.onnx"));
    EXPECT_EQ(staged->written().range_crcs.front(), crc32_of(mixed_tensors(1)[0].bytes));
    struct stat info {};
    ASSERT_EQ(::stat(staged->directory().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U);
  }
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Writer, RefusesToOverwriteBeforeAnyWork) {
  ASSERT_THAT(save(1, fast()), IsOk());
  const auto before = tree_of(out_);
  EXPECT_THAT(save(2, fast()), FailsWith(ErrorCode::kAlreadyExists, "--overwrite"));
  EXPECT_EQ(tree_of(out_), before);
}

TEST_F(Writer, ReplacesAnOldModelCompletely) {
  ASSERT_THAT(save(1, fast()), IsOk());
  ASSERT_THAT(save(2, replacing()), IsOk());
  EXPECT_TRUE(is_complete(out_));
  EXPECT_FALSE(fs::exists(out_ / "initializers"));
  EXPECT_EQ(read_text(out_ / "initializers.1/large.weight"), mixed_tensors(2)[0].bytes);
}

TEST_F(Writer, LeavesTheOldModelWhenASourceIsDamaged) {
  ASSERT_THAT(save(1, fast()), IsOk());
  const auto before = tree_of(out_);
  const std::string bias = mixed_tensors(2)[1].bytes;
  std::string bytes = torch_zip(mixed_tensors(2));
  bytes[bytes.find(bias)] ^= 1;
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", bytes));
  Model model = model_for(mixed_tensors(2));
  for (const int threads : {1, 8}) {
    WriteOptions options = replacing();
    options.threads = threads;
    EXPECT_THAT(save_all(checkpoint, model, out_, options),
                FailsWith(ErrorCode::kCorrupt, "CRC-32"));
    EXPECT_EQ(tree_of(out_), before);
  }
}

TEST_F(Writer, FindsDamageInARecordOfWhichOnlyAPartIsUsed) {
  const std::vector<TestTensor> tensors{
      {.name = "part", .shape = {10}, .bytes = noise(4000, 5), .offset = 20}};
  std::string bytes = torch_zip(tensors);
  bytes[bytes.find(tensors[0].bytes) + 3000] ^= 1;
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", bytes));
  Model model = model_for(tensors);
  EXPECT_THAT(save_all(checkpoint, model, out_, fast()), FailsWith(ErrorCode::kCorrupt, "c.pt"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Writer, LeavesNothingWhenCancelled) {
  WriteOptions options = fast();
  std::atomic<int> calls{0};
  options.progress = [&](const Progress&) {
    ++calls;
    return Continue::kCancel;
  };
  EXPECT_THAT(save(1, options), FailsWith(ErrorCode::kCancelled, ""));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Writer, ReportsAllBytesAtTheEndOfTheCopy) {
  Progress last_copy;
  WriteOptions options;
  options.progress = [&](const Progress& progress) {
    if (progress.phase == Phase::kCopy) {
      last_copy = progress;
    }
    return Continue::kYes;
  };
  ASSERT_THAT(save(1, options), IsOk());
  EXPECT_EQ(last_copy.bytes_done, last_copy.bytes_total);
  EXPECT_EQ(last_copy.bytes_total, 1'200'000U + 64 + 64 + 40'000 + 4800);
}

TEST_F(Writer, ClosesEveryDescriptor) {
  ASSERT_THAT(save(1, replacing()), IsOk());  // what libraries open once stays
  const auto before = open_descriptors();
  ASSERT_THAT(save(2, replacing()), IsOk());
  EXPECT_THAT(save(3, fast()), FailsWith(ErrorCode::kAlreadyExists, ""));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Writer, RecordsTheSha1OfEachFileWhenAsked) {
  WriteOptions options = fast();
  options.checksum = Checksum::kSha1;
  ASSERT_THAT(save(1, options), IsOk());
  const auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  int checked = 0;
  for (const auto& initializer : model->proto().graph().initializer()) {
    std::map<std::string, std::string> entries;
    for (const auto& entry : initializer.external_data()) {
      entries[entry.key()] = entry.value();
    }
    if (!entries.empty()) {
      const std::string content = read_text(out_ / entries["location"]);
      Sha sha(Sha::Kind::kSha1);
      sha.update(std::as_bytes(std::span(content)));
      EXPECT_EQ(entries["checksum"], sha.hex());
      ++checked;
    }
  }
  EXPECT_EQ(checked, 6);
}

TEST_F(Writer, CopiesTheGivenModelsExternalDataAlongEvenFromTheFilesItReplaces) {
  ASSERT_THAT(save(1, fast()), IsOk());
  // The written model is the graph, in its own folder; one tensor is replaced, five are kept.
  const std::vector<TestTensor> fresh{
      {.name = "part", .shape = {10, 1000}, .bytes = noise(40'000, 9)}};
  auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  ASSERT_THAT(save_all(open_one(dir_.write("f.pt", torch_zip(fresh))), *model, out_, replacing()),
              IsOk());
  EXPECT_TRUE(is_complete(out_));
  EXPECT_EQ(read_text(out_ / "initializers.1/part"), fresh[0].bytes);
  EXPECT_EQ(read_text(out_ / "initializers.1/large.weight"), mixed_tensors(1)[0].bytes);
  EXPECT_FALSE(fs::exists(out_ / "initializers"));
}

TEST_F(Writer, NamesAnExternalFileOfTheGivenModelThatIsMissing) {
  ASSERT_THAT(save(1, fast()), IsOk());
  auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  fs::remove(out_ / "initializers/turned");
  const std::vector<TestTensor> fresh{
      {.name = "part", .shape = {10, 1000}, .bytes = noise(40'000, 9)}};
  EXPECT_THAT(save_all(open_one(dir_.write("f.pt", torch_zip(fresh))), *model,
                       dir_.path() / "other", fast()),
              FailsWith(ErrorCode::kNotFound, "'turned'"));
  EXPECT_FALSE(fs::exists(dir_.path() / "other"));
}

TEST_F(Writer, RefusesARangeThatAnExternalFileOfTheGivenModelDoesNotHave) {
  constexpr std::int64_t kFarMoreThanADisk = std::int64_t{1} << 60;
  const std::vector<TestTensor> fresh{
      {.name = "part", .shape = {10, 1000}, .bytes = noise(40'000, 9)}};
  dir_.write("graph/big.bin", "12345678");
  GraphBuilder graph;
  graph.input("part", kFloat, {10, 1000}).node("Add", {"part", "big"}, {"y"});
  graph.external("big", kFloat, {kFarMoreThanADisk}, {{"location", "big.bin"}});
  auto model = Model::from_proto(graph.model(), dir_.path() / "graph");
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(save_all(open_one(dir_.write("f.pt", torch_zip(fresh))), *model,
                       dir_.path() / "other", fast()),
              FailsWith(ErrorCode::kCorrupt, "initializer 'big'"));
  EXPECT_FALSE(fs::exists(dir_.path() / "other"));
}

TEST_F(Writer, NoticesASourceThatChangesMeanwhile) {
  const fs::path file = checkpoint_file(1);
  const Checkpoint checkpoint = open_one(file);
  Model model = model_for(mixed_tensors(1));
  fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(save_all(checkpoint, model, out_, fast()), FailsWith(ErrorCode::kCorrupt, "changed"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Writer, WritesDeflatedAndBigEndianTensors) {
  const std::string little = noise(40'000, 7);
  std::string big = little;
  for (std::size_t i = 0; i < big.size(); i += 4) {
    std::reverse(big.begin() + static_cast<std::ptrdiff_t>(i),
                 big.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  }
  const auto tensors = [](std::string bytes) {
    return std::vector<TestTensor>{{.name = "w", .shape = {10'000}, .bytes = std::move(bytes)}};
  };
  dir_.write("deflated.pt", torch_zip(tensors(little), {.deflated = true}));
  dir_.write("big.pt", torch_zip(tensors(big), {.byte_order = "big"}));
  for (const std::string name : {"deflated.pt", "big.pt"}) {
    Model model = model_for(tensors(little));
    const fs::path out = dir_.path() / (name + ".out");
    ASSERT_THAT(save_all(open_one(dir_.path() / name), model, out, fast()), IsOk());
    EXPECT_EQ(read_text(out / "initializers/w"), little) << name;
    EXPECT_TRUE(is_complete(out));
  }
}

}  // namespace
}  // namespace onnx_external
