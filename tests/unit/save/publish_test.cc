#include "save/publish.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/output_file.h"
#include "onnx_external/save_external.h"
#include "save/manifest.h"
#include "save/output_folder.h"
#include "save/record.h"
#include "save/recovery.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

Names entries_of(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A model with a tensor in each of these files of the data folder. `text` is in it and in them.
std::string model_of(const std::string& text, const std::string& data_dir, const Names& files) {
  GraphBuilder b;
  b.input(text, kFloat, {1});
  for (const std::string& file : files) {
    b.external(file, onnx::TensorProto::UINT8, {static_cast<std::int64_t>(text.size())},
               {{"location", data_dir + "/" + file}});
  }
  b.node("Use", files, {"y"}).output("y", kFloat, {1});
  return b.bytes();
}

std::string manifest_for(const std::string& model, const std::string& text, const Names& files) {
  Manifest manifest;
  manifest.model_file = "model.onnx";
  manifest.model_bytes = model.size();
  Crc32 crc;
  crc.update(std::as_bytes(std::span(model)));
  manifest.model_crc32 = crc.value();
  for (const std::string& file : files) {
    manifest.tensors.push_back({file, 0, file, "exact", file, 0, text.size(), 0, 1, {1}});
  }
  return manifest_text(manifest);
}

Result<std::unique_ptr<Transaction>> begin(const fs::path& out,
                                           Overwrite overwrite = Overwrite::kRefuse,
                                           Sync sync = Sync::kFiles) {
  auto folder = open_output_folder(out, sync);
  if (!folder) {
    return fail(folder.error());
  }
  const auto data_dir = choose_data_dir(out, "model.onnx", "data", overwrite);
  if (!data_dir) {
    return fail(data_dir.error());
  }
  return Transaction::begin(*std::move(folder), {{"model.onnx"}, *data_dir, sync, overwrite});
}

void fill(Transaction& transaction, const std::string& text, const Names& files) {
  for (const std::string& file : files) {
    auto output = OutputFile::create(transaction.data(), file);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT(output->write(0, std::as_bytes(std::span(text))), IsOk());
    ASSERT_THAT(output->close(), IsOk());
  }
  const TransactionOptions& options = transaction.options();
  const std::string model = model_of(text, options.data_dir, files);
  ASSERT_THAT(write_file(transaction.staging(), options.models.front(), model, options.sync),
              IsOk());
  const std::string manifest = manifest_for(model, text, files);
  std::vector<PlannedFile> planned;
  for (const std::string& file : files) {
    planned.push_back({file, text.size()});
  }
  ASSERT_THAT(transaction.set_files(planned), IsOk());
  ASSERT_THAT(write_manifests(transaction, {&manifest, 1}), IsOk());
}

Status publish_filled(Transaction& transaction) {
  const auto model = read_identity(transaction.staging(), "model.onnx");
  if (!model) {
    return fail(model.error());
  }
  const auto kept = publish(transaction, {&*model, 1});
  return kept ? Status() : fail(kept.error());
}

void save(const fs::path& out, const std::string& text, const Names& files,
          Overwrite overwrite = Overwrite::kAllow) {
  auto transaction = begin(out, overwrite);
  ASSERT_THAT(transaction, IsOk());
  fill(**transaction, text, files);
  ASSERT_THAT(publish_filled(**transaction), IsOk());
}

bool has_text(const fs::path& model, const std::string& text) {
  return read_text(model).find(text) != std::string::npos;
}

TEST(Transaction, PublishesTheModelAndItsData) {
  TempDir dir;
  const fs::path out = dir.path() / "a" / "out";
  save(out, "one", {"x", "y"}, Overwrite::kRefuse);
  EXPECT_EQ(entries_of(out), (Names{"data", "model.onnx"}));
  EXPECT_EQ(entries_of(out / "data"), (Names{"manifest.json", "x", "y"}));
  EXPECT_TRUE(has_text(out / "model.onnx", "one"));
}

TEST(Transaction, LeavesNothingWithoutPublish) {
  TempDir dir;
  const fs::path out = dir.path() / "a" / "out";
  {
    auto transaction = begin(out);
    ASSERT_THAT(transaction, IsOk());
    fill(**transaction, "one", {"x"});
    EXPECT_EQ(entries_of(out).size(), 1U);
  }
  EXPECT_EQ(entries_of(dir.path()), Names{});
}

TEST(Transaction, KeepsAFolderThatItDidNotMake) {
  TempDir dir;
  dir.write("out/mine", "");
  ASSERT_THAT(begin(dir.path() / "out"), IsOk());
  EXPECT_EQ(entries_of(dir.path() / "out"), Names{"mine"});
}

TEST(Transaction, RefusesToReplaceUnlessAllowed) {
  TempDir dir;
  dir.write("model.onnx", "old");
  EXPECT_THAT(begin(dir.path()), FailsWith(ErrorCode::kAlreadyExists, "model.onnx: exists"));
  EXPECT_THAT(Transaction::begin(open_output_folder(dir.path(), Sync::kNone).value(),
                                 {{"model.onnx"}, "data", Sync::kNone}),
              FailsWith(ErrorCode::kAlreadyExists, "--overwrite"));
  EXPECT_EQ(entries_of(dir.path()), Names{"model.onnx"});
}

TEST(Transaction, RejectsAnythingInTheDataFoldersPlace) {
  TempDir dir;
  fs::create_symlink("elsewhere", dir.path() / "data");
  EXPECT_THAT(begin(dir.path()), FailsWith(ErrorCode::kAlreadyExists, "data: exists"));
}

TEST(Transaction, RefusesAModelNameThatIsAFolder) {
  TempDir dir;
  fs::create_directory(dir.path() / "model.onnx");
  EXPECT_THAT(begin(dir.path(), Overwrite::kAllow),
              FailsWith(ErrorCode::kAlreadyExists, "is a folder"));
}

TEST(Transaction, RefusesAModelNameThatIsAFifo) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir.path() / "model.onnx").c_str(), 0600), 0);
  for (const Overwrite overwrite : {Overwrite::kRefuse, Overwrite::kAllow}) {
    EXPECT_THAT(begin(dir.path(), overwrite),
                FailsWith(ErrorCode::kAlreadyExists, "model.onnx: is not a regular file"));
  }
  EXPECT_EQ(entries_of(dir.path()), Names{"model.onnx"});
}

TEST(Transaction, FailsWhenTheDataFolderAppearsMeanwhile) {
  TempDir dir;
  auto transaction = begin(dir.path());
  ASSERT_THAT(transaction, IsOk());
  fill(**transaction, "one", {"x"});
  dir.write("data/foreign", "kept");
  EXPECT_THAT(publish_filled(**transaction), FailsWith(ErrorCode::kAlreadyExists, "data"));
  transaction = fail(ErrorCode::kCancelled, "dropped");
  EXPECT_EQ(entries_of(dir.path()), Names{"data"});
  EXPECT_EQ(read_text(dir.path() / "data/foreign"), "kept");
}

TEST(Transaction, TakesItsDataBackWhenTheModelAppearsMeanwhile) {
  TempDir dir;
  {
    auto transaction = begin(dir.path());
    ASSERT_THAT(transaction, IsOk());
    fill(**transaction, "one", {"x"});
    dir.write("model.onnx", "foreign");
    EXPECT_THAT(publish_filled(**transaction), FailsWith(ErrorCode::kAlreadyExists, "model.onnx"));
  }
  EXPECT_EQ(entries_of(dir.path()), Names{"model.onnx"});
  EXPECT_EQ(read_text(dir.path() / "model.onnx"), "foreign");
}

TEST(Transaction, ReplacesOneGenerationByTheNext) {
  TempDir dir;
  save(dir.path(), "one", {"x", "gone"});
  save(dir.path(), "two", {"x"});
  EXPECT_EQ(entries_of(dir.path()), (Names{"data.1", "model.onnx"}));
  save(dir.path(), "three", {"x"});
  EXPECT_EQ(entries_of(dir.path()), (Names{"data.2", "model.onnx"}));
  EXPECT_TRUE(has_text(dir.path() / "model.onnx", "three"));
  EXPECT_EQ(read_text(dir.path() / "data.2/x"), "three");
}

TEST(Transaction, NeverRemovesFilesThatTheOldManifestDoesNotList) {
  TempDir dir;
  save(dir.path(), "one", {"x", "y"});
  dir.write("data/mine", "kept");
  fs::remove(dir.path() / "data/y");
  fs::create_symlink("../mine", dir.path() / "data/y");
  dir.write("mine", "kept too");
  save(dir.path(), "two", {"x"});
  EXPECT_EQ(entries_of(dir.path() / "data"), (Names{"mine", "y"}));
  EXPECT_EQ(read_text(dir.path() / "mine"), "kept too");
}

TEST(Transaction, LeavesTheDataOfOtherModelsAlone) {
  TempDir dir;
  save(dir.path(), "one", {"x"});
  fs::rename(dir.path() / "model.onnx", dir.path() / "kept.onnx");
  save(dir.path(), "two", {"x"});
  save(dir.path(), "three", {"x"});
  EXPECT_EQ(entries_of(dir.path()), (Names{"data", "data.2", "kept.onnx", "model.onnx"}));
}

TEST(Transaction, ReplacesALinkAndNotWhatItPointsTo) {
  TempDir dir;
  dir.write("elsewhere/real.onnx", "real");
  fs::create_directory(dir.path() / "out");
  fs::create_symlink("../elsewhere/real.onnx", dir.path() / "out/model.onnx");
  save(dir.path() / "out", "two", {"x"});
  EXPECT_FALSE(fs::is_symlink(dir.path() / "out/model.onnx"));
  EXPECT_EQ(read_text(dir.path() / "elsewhere/real.onnx"), "real");
}

TEST(Transaction, LetsOnlyOneSaverIn) {
  TempDir dir;
  const auto first = begin(dir.path());
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(begin(dir.path()), FailsWith(ErrorCode::kBusy, "another save"));
  EXPECT_EQ(entries_of(dir.path()).size(), 1U);
}

TEST(Transaction, KeepsOtherSavesFromReadingTheirInputs) {
  TempDir dir;
  const auto running = begin(dir.path());
  ASSERT_THAT(running, IsOk());
  const fs::path missing = dir.path() / "missing";
  EXPECT_THAT(
      save_graph_with_external_data(dir.path(), "other.onnx", "other", {&missing, 1}, missing, {}),
      FailsWith(ErrorCode::kBusy, "another save"));
}

TEST(Transaction, RemovesTheStagingFolderOfADeadSaver) {
  TempDir dir;
  dir.write(".save-external.0123456789abcdef.tmp/data/x", "half");
  dir.write(".save-external.mine.tmp/x", "foreign");
  save(dir.path(), "one", {"x"}, Overwrite::kRefuse);
  EXPECT_EQ(entries_of(dir.path()), (Names{".save-external.mine.tmp", "data", "model.onnx"}));
}

ModelIdentity identity_of(const std::string& model) {
  Crc32 crc;
  crc.update(std::as_bytes(std::span(model)));
  return {model.size(), crc.value()};
}

constexpr const char* kStaging = ".save-external.0123456789abcdef.tmp";

// A save of "two", with x and y, over the model in place is killed once its data is in place.
// Returns the new model.
std::string killed_save(const TempDir& dir) {
  const std::string model = model_of("two", "data.1", {"x", "y"});
  dir.write("data.1/x", "two");
  dir.write("data.1/y", "two");
  dir.write("data.1/manifest.json", manifest_for(model, "two", {"x", "y"}));
  dir.write(std::string(kStaging) + "/model.onnx", model);
  fs::permissions(dir.path() / kStaging, fs::perms::owner_all);
  const Directory out = Directory::open(dir.path()).value();
  const Directory data = out.open_folder("data.1").value();
  const auto listed = [&](const std::string& name) {
    return list_file(data, name, "data.1/" + name).value();
  };
  const ModelIdentity old = read_identity(out, "model.onnx").value();
  auto record = RecordWriter::start(out.open_folder(kStaging).value(), "", {});
  EXPECT_THAT(record, IsOk());
  const Publication publication{Overwrite::kAllow,
                                {"data.1"},
                                {listed("x"), listed("y")},
                                {{"model.onnx", identity_of(model), listed("manifest.json"), old,
                                  list_data_of(out, "model.onnx", old, {}).value()}}};
  EXPECT_THAT(record->publish(publication, Sync::kNone), IsOk());
  return model;
}

TEST(Transaction, RemovesTheDataOfASaverThatDiedBeforeTheCommit) {
  TempDir dir;
  save(dir.path(), "one", {"x"});
  (void)killed_save(dir);
  ASSERT_THAT(begin(dir.path(), Overwrite::kAllow), IsOk());
  EXPECT_EQ(entries_of(dir.path()), (Names{"data", "model.onnx"}));
  EXPECT_EQ(entries_of(dir.path() / "data"), (Names{"manifest.json", "x"}));
  (void)killed_save(dir);
  save(dir.path(), "three", {"x"});
  EXPECT_EQ(entries_of(dir.path()), (Names{"data.1", "model.onnx"}));
  EXPECT_EQ(read_text(dir.path() / "data.1/x"), "three");
}

TEST(Transaction, FinishesTheRemovalOfASaverThatDiedAfterTheCommit) {
  TempDir dir;
  save(dir.path(), "one", {"x", "y"});
  (void)killed_save(dir);
  fs::rename(dir.path() / kStaging / "model.onnx", dir.path() / "model.onnx");
  fs::remove(dir.path() / "data/x");  // so far did it come
  const auto next = begin(dir.path(), Overwrite::kAllow);
  ASSERT_THAT(next, IsOk());
  EXPECT_FALSE(fs::exists(dir.path() / "data"));
  EXPECT_EQ(entries_of(dir.path() / "data.1"), (Names{"manifest.json", "x", "y"}));
}

TEST(Transaction, KeepsFilesOfOthersInTheDataOfASaverThatDied) {
  TempDir dir;
  save(dir.path(), "one", {"x"});
  (void)killed_save(dir);
  dir.write("data.1/mine", "kept");
  dir.write("data.1/y", "own");  // of the same size
  fs::last_write_time(dir.path() / "data.1/y", fs::file_time_type::clock::now());
  ASSERT_THAT(open_output_folder(dir.path(), Sync::kNone), IsOk());
  EXPECT_EQ(entries_of(dir.path() / "data.1"), (Names{"mine", "y"}));
}

// A model that another tool has written since refers to the data, so it is in use.
TEST(Transaction, LeavesTheDataOfASaverThatDiedToAModelThatRefersToIt) {
  TempDir dir;
  save(dir.path(), "one", {"x"});
  (void)killed_save(dir);
  dir.write("other.onnx", model_of("other", "data.1", {"y"}));
  ASSERT_THAT(open_output_folder(dir.path(), Sync::kNone), IsOk());
  EXPECT_EQ(entries_of(dir.path() / "data.1"), (Names{"manifest.json", "y"}));
}

TEST(Transaction, FollowsTheUmask) {
  TempDir dir;
  const mode_t before = ::umask(027);
  save(dir.path(), "one", {"x"});
  ::umask(before);
  for (const auto& [name, mode] : std::vector<std::pair<std::string, mode_t>>{
           {"data", 0750}, {"data/x", 0640}, {"data/manifest.json", 0640}, {"model.onnx", 0640}}) {
    struct stat info {};
    ASSERT_EQ(::stat((dir.path() / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777U, mode) << name;
    EXPECT_TRUE(S_ISDIR(info.st_mode) || info.st_nlink == 1) << name;
  }
}

TEST(ChooseDataDir, CountsUpFromTheNewestGeneration) {
  TempDir dir;
  EXPECT_EQ(choose_data_dir(dir.path() / "none", "m", "data", Overwrite::kRefuse), "data");
  EXPECT_EQ(choose_data_dir(dir.path(), "m", "data", Overwrite::kAllow), "data");
  for (const char* name : {"data.9", "data.10", "data.011", "data.x", "data.1e3", "database.77"}) {
    fs::create_directory(dir.path() / name);
  }
  EXPECT_EQ(choose_data_dir(dir.path(), "m", "data", Overwrite::kAllow), "data.11");
}

TEST(ChooseDataDir, AlsoCountsFilesBesideTheModel) {
  TempDir dir;
  for (const char* name : {"m.3.data", "m.5-00001-of-00002.data", "m.4.manifest.json", "n.9.data",
                           "m.7.data.part", "m.8", "m.08.data"}) {
    dir.write(name, "");
  }
  fs::create_directory(dir.path() / "data.2");
  EXPECT_EQ(choose_data_dir(dir.path(), "m.onnx", "data", Overwrite::kAllow), "data.6");
  EXPECT_EQ(choose_data_dir(dir.path(), "m.onnx", "data", Overwrite::kRefuse, Layout::kSingle),
            "data");
  dir.write("m.manifest.json", "");
  EXPECT_THAT(choose_data_dir(dir.path(), "m.onnx", "data", Overwrite::kRefuse, Layout::kShards),
              FailsWith(ErrorCode::kAlreadyExists, "m.manifest.json: exists"));
  EXPECT_EQ(choose_data_dir(dir.path(), "m.onnx", "data", Overwrite::kRefuse), "data");
}

TEST(CheckOutputNames, RejectsNamesThatAreNotPlain) {
  EXPECT_THAT(check_output_names("model.onnx", "initializers"), IsOk());
  for (const char* bad : {"", ".", "..", "a/b", "/a", "a..b", "#a", "a\\b", "a\nb",
                          ".save-external.0123456789abcdef.tmp"}) {
    EXPECT_THAT(check_output_names(bad, "data"), FailsWith(ErrorCode::kInvalidArgument, "model"));
    EXPECT_THAT(check_output_names("m", bad), FailsWith(ErrorCode::kInvalidArgument, "folder"));
  }
  EXPECT_THAT(check_output_names("m", std::string(201, 'x')),
              FailsWith(ErrorCode::kInvalidArgument, "200 bytes"));
  EXPECT_THAT(check_output_names("Data", "data"),
              FailsWith(ErrorCode::kInvalidArgument, "same name"));
}

}  // namespace
}  // namespace onnx_external
