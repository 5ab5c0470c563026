// Recorded inputs: which tensor feeds which input, what is refused, what is written.
#include "onnx_external/test_data.h"

#include <gtest/gtest.h>

#include "base/directory.h"
#include "save/test_data_files.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TestTensor floats(const std::string& name, const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return {.name = name, .shape = shape, .bytes = noise(static_cast<std::size_t>(count) * 4, 1)};
}

// (args, {}) with `tensors` as positional arguments.
std::string positional(const std::vector<TestTensor>& tensors) {
  PickleBuilder pickle;
  pickle.proto().mark().mark();
  ZipBuilder zip;
  std::size_t key = 0;
  for (const TestTensor& tensor : tensors) {
    put_tensor(pickle, tensor, std::to_string(key++), tensor.bytes.size());
  }
  zip.add({.name = "a/data.pkl", .data = pickle.tuple().empty_dict().tuple().stop().bytes()});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    zip.add({.name = "a/data/" + std::to_string(i), .data = tensors[i].bytes});
  }
  return zip.finish();
}

class TestDataTest : public testing::Test {
 protected:
  // Adds a recording with this content.
  void record(const std::string& content) {
    const auto path = dir_.write("recording" + std::to_string(recordings_.size()) + ".pt", content);
    auto opened = open_recording(path);
    ASSERT_THAT(opened, IsOk());
    recordings_.push_back(*std::move(opened));
  }
  void record(const std::vector<TestTensor>& keywords) { record(torch_zip(keywords)); }

  [[nodiscard]] Result<TestData> plan() const { return plan_test_data(inputs(), recordings_); }
  [[nodiscard]] std::vector<GraphInput> inputs() const {
    std::vector<std::string> names;
    for (const auto& input : proto().input()) {
      names.push_back(input.name());
    }
    return graph_inputs(proto(), names);
  }
  [[nodiscard]] Status check() const {
    const auto planned = plan();
    return planned ? check_test_data(inputs(), *planned) : Status(fail(planned.error()));
  }
  // "recorded" names of a set, in the order of the graph's inputs.
  [[nodiscard]] std::vector<std::string> feeds(std::size_t set = 0) const {
    const auto planned = plan();
    EXPECT_THAT(planned, IsOk());
    std::vector<std::string> names;
    for (const TestInput& input :
         planned ? planned->sets.at(set).inputs : std::vector<TestInput>()) {
      names.push_back(input.recorded);
    }
    return names;
  }
  [[nodiscard]] const onnx::GraphProto& proto() const { return model_->graph(); }

  TempDir dir_;
  GraphBuilder graph;
  const onnx::ModelProto* model_ = &graph.model();
  std::vector<Checkpoint> recordings_;
};

TEST_F(TestDataTest, KeywordsFindTheirInputsByName) {
  graph.input("a.x", kFloat, {1}).input("b", kFloat, {1});
  record({floats("b", {1}), floats("a_x", {1})});
  EXPECT_THAT(feeds(), ElementsAre("a_x", "b"));
}

TEST_F(TestDataTest, PositionalTensorsComeInOrder) {
  graph.input("p", kFloat, {2}).input("q", kFloat, {1});
  record(positional({floats("", {2}), floats("", {1})}));
  EXPECT_THAT(feeds(), ElementsAre("[0]", "[1]"));
}

TEST_F(TestDataTest, KeywordsThatFitNoNameComeInOrder) {
  graph.input("input.1", kFloat, {2}).input("input.2", kFloat, {1});
  record({floats("x", {2}), floats("y", {1})});
  EXPECT_THAT(feeds(), ElementsAre("x", "y"));
}

TEST_F(TestDataTest, PartsOfCachesFindTheirInputsInEverySpelling) {
  graph.input("past.0.key", kFloat, {1}).input("past.0.value", kFloat, {1});
  graph.input("past_key_1", kFloat, {1}).input("past_value_1", kFloat, {1});
  graph.input("past_key_cache_2", kFloat, {1}).input("past_value_cache_2", kFloat, {1});
  graph.input("past.3.decoder.key", kFloat, {1});
  record({floats("past.key_cache.0", {1}), floats("past.key_cache.1", {1}),
          floats("past.key_cache.2", {1}), floats("past.value_cache.0", {1}),
          floats("past.value_cache.1", {1}), floats("past.value_cache.2", {1}),
          floats("past.self_attention_cache.key_cache.3", {1})});
  EXPECT_THAT(feeds(), ElementsAre("past.key_cache.0", "past.value_cache.0", "past.key_cache.1",
                                   "past.value_cache.1", "past.key_cache.2", "past.value_cache.2",
                                   "past.self_attention_cache.key_cache.3"));
}

TEST_F(TestDataTest, KeysNeverFeedValues) {
  graph.input("in.0.key", kFloat, {1}).input("in.0.value", kFloat, {1});
  record({floats("past.value_cache.0", {1}), floats("past.key_cache.0", {1})});
  EXPECT_THAT(plan(), FailsWith(ErrorCode::kMismatch,
                                "'past.value_cache.0' is at the position of input 'in.0.key'"));
}

TEST_F(TestDataTest, RefusesAnInputThatNothingFeeds) {
  graph.input("x", kFloat, {1}).input("y", kFloat, {1});
  record({floats("x", {1}), floats("z", {1})});
  EXPECT_THAT(plan(), FailsWith(ErrorCode::kMismatch,
                                "recorded set 0: no recorded value matches input 'y'; recorded "
                                "values that match no input: 'z'"));
}

TEST_F(TestDataTest, RefusesAPositionalTensorTooMany) {
  graph.input("x", kFloat, {1});
  record(positional({floats("", {1}), floats("", {1})}));
  EXPECT_THAT(plan(), FailsWith(ErrorCode::kMismatch, "'[1]' matches no remaining input"));
}

TEST_F(TestDataTest, ListsKeywordsThatTheGraphDoesNotUse) {
  graph.input("x", kFloat, {1});
  record({floats("x", {1}), floats("labels", {1})});
  EXPECT_THAT(plan()->sets.at(0).unused, ElementsAre("labels"));
}

TEST_F(TestDataTest, RefusesTwoTensorsForOneInput) {
  graph.input("a.x", kFloat, {1});
  record({floats("a.x", {1}), floats("a_x", {1})});
  EXPECT_THAT(plan(), FailsWith(ErrorCode::kMismatch, "'a.x' and 'a_x' both fit input 'a.x'"));
}

TEST_F(TestDataTest, RefusesAnotherElementType) {
  graph.input("x", kInt64, {1});
  record({floats("x", {1})});
  EXPECT_THAT(plan(),
              FailsWith(ErrorCode::kMismatch, "input 'x' is INT64, but recorded 'x' is FLOAT"));
}

TEST_F(TestDataTest, RefusesAnotherRank) {
  graph.input("x", kFloat, {kAnySize, 1});
  record({floats("x", {1})});
  EXPECT_THAT(plan(), FailsWith(ErrorCode::kMismatch, "input 'x' has 2 dimensions"));
}

TEST_F(TestDataTest, RefusesAnotherFixedDimension) {
  graph.input("x", kFloat, {4});
  record({floats("x", {3})});
  EXPECT_THAT(check(),
              FailsWith(ErrorCode::kMismatch,
                        "recorded set 0: dimension 0 of input 'x' is 4, but recorded 'x' has 3"));
}

TEST_F(TestDataTest, RefusesASymbolWithTwoValuesInOneSet) {
  graph.input("x", kFloat, {kAnySize}).input("y", kFloat, {kAnySize});
  record({floats("x", {3}), floats("y", {2})});
  EXPECT_THAT(check(),
              FailsWith(ErrorCode::kMismatch, "symbol 'N' is 3 in input 'x', but 2 in input 'y'"));
}

TEST_F(TestDataTest, OneSetSaysNothingAboutDimensions) {
  graph.input("x", kFloat, {kAnySize});
  record({floats("x", {3})});
  EXPECT_THAT(plan()->dimensions, IsEmpty());
}

TEST_F(TestDataTest, TwoSetsTellWhichDimensionsVary) {
  graph.input("x", kFloat, {2, 4, kAnySize}).input("y", kFloat, {kAnySize});
  record({floats("x", {2, 4, 3}), floats("y", {3})});
  record({floats("x", {2, 5, 3}), floats("y", {7})});
  const auto planned = plan();
  ASSERT_THAT(planned, IsOk());
  ASSERT_EQ(planned->dimensions.size(), 3U);
  EXPECT_EQ(planned->dimensions[0].axis, 1U);
  EXPECT_EQ(planned->dimensions[0].graph, "4");
  EXPECT_EQ(planned->dimensions[0].verdict, DimensionVerdict::kMustBeSymbolic);
  EXPECT_THAT(planned->dimensions[0].seen, ElementsAre(4, 5));
  EXPECT_EQ(planned->dimensions[1].graph, "N");
  EXPECT_EQ(planned->dimensions[1].verdict, DimensionVerdict::kNeverVaried);
  EXPECT_EQ(planned->dimensions[2].input, "y");
  EXPECT_EQ(planned->dimensions[2].verdict, DimensionVerdict::kSymbolic);
}

TEST_F(TestDataTest, RefusesFixedDimensionsThatVaryTogether) {
  graph.input("x", kFloat, {2, 4});
  record({floats("x", {2, 4})});
  record({floats("x", {3, 5})});
  EXPECT_THAT(
      check(),
      FailsWith(
          ErrorCode::kMismatch,
          "dimension 0 of input 'x' is 2, but the recorded sizes are [2, 3]; dimension 1 of input "
          "'x' is 4, but the recorded sizes are [4, 5]); export these dimensions as dynamic"));
}

TEST_F(TestDataTest, TakesASafetensorsFileAsOneSetOfKeywords) {
  graph.input("0.x", kFloat, {1});
  const std::string header = R"({"0.x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string file;
  put_le(file, header.size(), 8);
  record(file + header + "abcd");
  EXPECT_THAT(feeds(), ElementsAre("0.x"));
}

TEST_F(TestDataTest, DoesNotAskTheRecordingForTheKeyOfTheCheckpoint) {
  std::string file;
  put_le(file, 2, 8);
  EXPECT_THAT(open_recording(dir_.write("empty.safetensors", file + "{}"), {.key = "model"}),
              IsOk());
}

TEST_F(TestDataTest, TakesAShardedSafetensorsIndexAsOneSetOfKeywords) {
  graph.input("x", kFloat, {1});
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string file;
  put_le(file, header.size(), 8);
  dir_.write("s.safetensors", file + header + "abcd");
  record(R"({"weight_map":{"x":"s.safetensors"}})");
  EXPECT_THAT(feeds(), ElementsAre("x"));
}

TEST_F(TestDataTest, TakesTheExampleInputsOfAnExportedProgram) {
  graph.input("x", kFloat, {1});
  ZipBuilder zip;
  zip.add({.name = "serialized_exported_program.json", .data = "{}"});
  zip.add({.name = "serialized_state_dict.pt", .data = torch_zip({floats("w", {1})})});
  zip.add({.name = "serialized_example_inputs.pt", .data = positional({floats("", {1})})});
  record(zip.finish());
  EXPECT_THAT(feeds(), ElementsAre("[0]"));
}

// Writing.

class TestDataFiles : public TestDataTest {
 protected:
  TestDataFiles() { fs::create_directories(out_); }

  // Writes what is recorded.
  Status save(Overwrite overwrite = Overwrite::kRefuse) {
    auto planned = plan();
    if (!planned) {
      return fail(std::move(planned).error());
    }
    const RecordedInputs inputs{*std::move(planned), std::move(recordings_)};
    recordings_.clear();
    const Status checked = check_test_data_files(inputs, out_, overwrite);
    return checked ? write_test_data(inputs, out_, {overwrite}) : checked;
  }
  [[nodiscard]] onnx::TensorProto read(const std::string& file) const {
    onnx::TensorProto proto;
    EXPECT_TRUE(proto.ParseFromString(read_text(out_ / file))) << file;
    return proto;
  }
  void record_one(std::uint32_t seed) {
    record(std::vector<TestTensor>{{.name = "x", .shape = {2, 3}, .bytes = noise(24, seed)}});
  }

  fs::path out_ = dir_.path() / "out";
};

TEST_F(TestDataFiles, HoldTheTensorsInTheOrderOfTheGraph) {
  graph.input("x", kFloat, {2, 3}).input("n", kInt64, {});
  record({{.name = "n", .dtype = DType::kInt64, .bytes = noise(8, 1)},
          {.name = "x",
           .shape = {2, 3},
           .bytes = f32({0, 1, 2, 3, 4, 5}),
           .strides = std::vector<std::int64_t>{1, 2}}});
  ASSERT_THAT(save(), IsOk());
  const onnx::TensorProto x = read("test_data_set_0/input_0.pb");
  EXPECT_EQ(x.name(), "x");
  EXPECT_EQ(x.data_type(), kFloat);
  EXPECT_THAT(std::vector<std::int64_t>(x.dims().begin(), x.dims().end()), ElementsAre(2, 3));
  EXPECT_EQ(x.raw_data(), f32({0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(read("test_data_set_0/input_1.pb").raw_data(), noise(8, 1));
  EXPECT_EQ(tree_of(out_).size(), 3U);  // the set's folder and its files
}

TEST_F(TestDataFiles, AreNotReplacedUnlessAllowed) {
  graph.input("x", kFloat, {2, 3});
  dir_.write("out/test_data_set_0/input_0.pb", "mine");
  record_one(1);
  EXPECT_THAT(save(), FailsWith(ErrorCode::kAlreadyExists, "test_data_set_0: exists"));
  EXPECT_EQ(tree_of(out_).size(), 2U);
}

TEST_F(TestDataFiles, ReplaceAllOlderOnes) {
  graph.input("x", kFloat, {2, 3});
  record_one(1);
  record_one(2);
  ASSERT_THAT(save(), IsOk());
  record_one(3);
  ASSERT_THAT(save(Overwrite::kAllow), IsOk());
  EXPECT_EQ(read("test_data_set_0/input_0.pb").raw_data(), noise(24, 3));
  EXPECT_EQ(tree_of(out_).size(), 2U);
}

TEST_F(TestDataFiles, NeverReplaceAFolderWithOtherFiles) {
  graph.input("x", kFloat, {2, 3});
  dir_.write("out/test_data_set_0/output_0.pb", "mine");
  record_one(1);
  EXPECT_THAT(save(Overwrite::kAllow),
              FailsWith(ErrorCode::kAlreadyExists, "is not a folder with only recorded inputs"));
  EXPECT_EQ(read_text(out_ / "test_data_set_0/output_0.pb"), "mine");
}

// A set that nothing replaces goes, too, but not a folder with anything else in it.
TEST_F(TestDataFiles, DoNotReplaceAFolderThatIsNotASetOfInputs) {
  graph.input("x", kFloat, {2, 3});
  record_one(1);
  ASSERT_THAT(save(), IsOk());
  dir_.write("out/test_data_set_1/input_0.pb", "old");
  dir_.write("out/test_data_set_2/output_0.pb", "mine");
  dir_.write("out/test_data_set_x/input_0.pb", "mine");
  record_one(2);
  ASSERT_THAT(save(Overwrite::kAllow), IsOk());
  EXPECT_FALSE(fs::exists(out_ / "test_data_set_1"));
  EXPECT_TRUE(fs::exists(out_ / "test_data_set_2/output_0.pb"));
  EXPECT_TRUE(fs::exists(out_ / "test_data_set_x/input_0.pb"));
}

TEST_F(TestDataFiles, AreNotWrittenFromADamagedRecording) {
  graph.input("x", kFloat, {2, 3});
  record_one(1);
  const auto path = dir_.path() / "recording0.pt";
  std::string bytes = read_text(path);
  const std::string tensor = noise(24, 1);
  bytes[bytes.find(tensor)] ^= 1;
  dir_.write("recording0.pt", bytes);
  recordings_.clear();
  recordings_.push_back(open_recording(path).value());
  EXPECT_THAT(save(), FailsWith(ErrorCode::kCorrupt, "recorded input 'x'"));
  EXPECT_TRUE(fs::is_empty(out_));
}

TEST_F(TestDataFiles, AreNotWrittenWhileASaveIsAtWorkInTheFolder) {
  graph.input("x", kFloat, {2, 3});
  record_one(1);
  const auto other = Directory::open(out_).value();
  ASSERT_EQ(other.try_lock(), true);
  EXPECT_THAT(save(), FailsWith(ErrorCode::kBusy, "another save is writing to this folder"));
  EXPECT_TRUE(fs::is_empty(out_));
}

TEST(TestInputHeader, RefusesWhatProtobufCannotHold) {
  EXPECT_THAT(test_input_header({.name = "x", .recorded = "x", .dims = {}}, 0x7fffffff),
              FailsWith(ErrorCode::kUnsupported, "more than a protobuf file can hold"));
}

}  // namespace
}  // namespace onnx_external
