#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/manifest.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Options = WriterOptions;

constexpr std::int64_t kFloats = 1000;

std::string content_of(std::size_t index) {
  return std::string(kFloats * sizeof(float), static_cast<char>('a' + index % 26));
}

std::string name_of(std::size_t index) {
  return (index % 2 == 0 ? "layer." : "Layer.") + std::to_string(index / 2);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

onnx::ModelProto empty_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.mutable_graph()->set_name("g");
  model.add_opset_import()->set_version(17);
  return model;
}

// Adds `count` tensors in the given order from `threads` threads, then finishes a model that lists
// them by index.
Status write(const fs::path& out, const std::vector<std::size_t>& order, int threads,
             const Options& options = {}) {
  auto writer = Writer::create(out / "model.onnx", options);
  if (!writer) {
    return fail(writer.error());
  }
  std::vector<onnx::TensorProto> protos(order.size());
  Status status = parallel_for(order.size(), threads, [&](std::size_t i, int) -> Status {
    const std::size_t index = order[i];
    auto proto = writer->add(name_of(index), DType::kFloat32, std::vector{kFloats},
                             bytes_of(content_of(index)));
    if (!proto) {
      return fail(proto.error());
    }
    protos[index] = *std::move(proto);
    return {};
  });
  if (!status) {
    return status;
  }
  onnx::ModelProto model = empty_model();
  for (onnx::TensorProto& proto : protos) {
    *model.mutable_graph()->add_initializer() = std::move(proto);
  }
  return writer->finish(model);
}

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

std::map<std::string, std::string> files_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
    }
  }
  return files;
}

TEST(StreamingWriter, WritesTheSameWhateverTheOrderAndTheThreads) {
  TempDir dir;
  ASSERT_THAT(write(dir.path() / "one", in_order(100), 1), IsOk());
  std::vector<std::size_t> order = in_order(100);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  ASSERT_THAT(write(dir.path() / "eight", order, 8), IsOk());
  const auto files = files_below(dir.path() / "one");
  EXPECT_EQ(files.size(), 102U);  // and the model, and the manifest
  EXPECT_EQ(files, files_below(dir.path() / "eight"));
  EXPECT_EQ(files.at("initializers/layer.3"), content_of(6));
}

TEST(StreamingWriter, ReturnsInitializersThatReferToTheFiles) {
  TempDir dir;
  auto writer = Writer::create(dir.path() / "model.onnx");
  ASSERT_THAT(writer, IsOk());
  const auto proto = writer->add("w", DType::kFloat32, std::vector<std::int64_t>{10, 100},
                                 bytes_of(content_of(0)));
  ASSERT_THAT(proto, IsOk());
  EXPECT_EQ(proto->data_type(), onnx::TensorProto::FLOAT);
  EXPECT_EQ(proto->data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(proto->dims(1), 100);
  ASSERT_EQ(proto->external_data_size(), 3);
  EXPECT_EQ(proto->external_data(0).value(), "initializers/w");
  EXPECT_EQ(proto->external_data(2).value(), "4000");
  const auto small = writer->add("n", DType::kInt64, {}, bytes_of("12345678"));
  ASSERT_THAT(small, IsOk());
  EXPECT_EQ(small->raw_data(), "12345678");
  const auto none =
      writer->add("z", DType::kFloat32, std::vector<std::int64_t>{0, 3}, bytes_of(""));
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->data_location(), onnx::TensorProto::DEFAULT);
}

TEST(StreamingWriter, RefusesATwinAndAWrongNumberOfBytes) {
  TempDir dir;
  auto writer = Writer::create(dir.path() / "model.onnx");
  ASSERT_THAT(writer, IsOk());
  const std::vector<std::int64_t> shape{kFloats};
  ASSERT_THAT(writer->add("w", DType::kFloat32, shape, bytes_of(content_of(0))), IsOk());
  EXPECT_THAT(writer->add("w", DType::kFloat32, shape, bytes_of(content_of(0))),
              FailsWith(ErrorCode::kInvalidArgument, "'w'"));
  EXPECT_THAT(writer->add("v", DType::kFloat32, shape, bytes_of("short")),
              FailsWith(ErrorCode::kInvalidArgument, "bytes, not 5"));
  EXPECT_THAT(writer->add("v", DType::kFloat32, std::vector<std::int64_t>{-1}, bytes_of("")),
              FailsWith(ErrorCode::kInvalidArgument, "'v'"));
  EXPECT_THAT(writer->add("\xff", DType::kFloat32, shape, bytes_of(content_of(0))),
              FailsWith(ErrorCode::kInvalidArgument, "not UTF-8"));
  EXPECT_THAT(writer->add("c", DType::kComplex32, std::vector<std::int64_t>{1}, bytes_of("1234")),
              FailsWith(ErrorCode::kUnsupported, "complex32"));
}

TEST(StreamingWriter, RefusesAModelThatDoesNotFitWhatWasAdded) {
  TempDir dir;
  {
    auto writer = Writer::create(dir.path() / "out/model.onnx");
    ASSERT_THAT(writer, IsOk());
    auto proto = writer->add("w", DType::kFloat32, std::vector{kFloats}, bytes_of(content_of(0)));
    ASSERT_THAT(proto, IsOk());
    onnx::ModelProto model = empty_model();
    const auto loaded = Model::load(dir.write("graph.onnx", model.SerializeAsString()));
    EXPECT_THAT(writer->finish(*loaded), FailsWith(ErrorCode::kInvalidArgument, "'w'"));
    proto->set_name("foreign");
    *model.mutable_graph()->add_initializer() = *proto;
    EXPECT_THAT(writer->finish(model), FailsWith(ErrorCode::kInvalidArgument, "'foreign'"));
  }
  EXPECT_FALSE(fs::exists(dir.path() / "out"));
}

TEST(StreamingWriter, ReplacesAnOldModel) {
  TempDir dir;
  ASSERT_THAT(write(dir.path(), in_order(4), 1), IsOk());
  EXPECT_THAT(write(dir.path(), in_order(4), 1), FailsWith(ErrorCode::kAlreadyExists, ""));
  Options options;
  options.overwrite = Overwrite::kAllow;
  options.sync = Sync::kNone;
  ASSERT_THAT(write(dir.path(), in_order(2), 1, options), IsOk());
  const auto files = files_below(dir.path());
  EXPECT_EQ(files.size(), 4U);
  EXPECT_TRUE(files.contains("initializers.1/layer.0"));
}

TEST(StreamingWriter, RecordsItsTensorsInTheManifest) {
  TempDir dir;
  ASSERT_THAT(write(dir.path(), in_order(3), 1), IsOk());
  const auto manifest = parse_manifest(read_text(dir.path() / "initializers/manifest.json"));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->model_bytes, fs::file_size(dir.path() / "model.onnx"));
  ASSERT_EQ(manifest->tensors.size(), 3U);
  EXPECT_EQ(manifest->tensors[0].slot, "layer.0");
  EXPECT_EQ(manifest->tensors[0].length, 4000U);
}

// Several tensors of different sizes in files that hold more than one.
class StreamingWriterLayouts : public testing::TestWithParam<Layout> {
 protected:
  Options options() const {
    Options options;
    options.sync = Sync::kNone;
    options.layout = GetParam();
    options.max_shard_bytes = 10'000;
    return options;
  }
  // The bytes of every initializer of the model in `out`.
  static std::map<std::string, std::string> saved(const fs::path& out) {
    std::map<std::string, std::string> bytes;
    const auto model = Model::load(out / "model.onnx");
    EXPECT_THAT(model, IsOk());
    for (const ExternalTensor& tensor : model->external_tensors()) {
      const std::string file = read_text(out / tensor.location);
      EXPECT_LE(tensor.offset + tensor.length, file.size());
      bytes[tensor.name] = file.substr(tensor.offset, tensor.length);
    }
    return bytes;
  }
  static std::map<std::string, std::string> wanted(std::size_t count) {
    std::map<std::string, std::string> bytes;
    for (std::size_t i = 0; i < count; ++i) {
      bytes[name_of(i)] = content_of(i);
    }
    return bytes;
  }
  fs::path out() const { return dir_.path() / "out"; }
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(All, StreamingWriterLayouts,
                         testing::Values(Layout::kPerTensor, Layout::kSingle, Layout::kShards),
                         [](const auto& test) {
                           return test.param == Layout::kPerTensor ? "PerTensor"
                                  : test.param == Layout::kSingle  ? "Single"
                                                                   : "Shards";
                         });

TEST_P(StreamingWriterLayouts, HaveEveryTensorWhoeverAddsIt) {
  for (const int threads : {1, 4}) {
    fs::remove_all(out());
    ASSERT_THAT(write(out(), in_order(40), threads, options()), IsOk());
    EXPECT_EQ(saved(out()), wanted(40));
    const auto report = verify_model(out() / "model.onnx");
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->ok() && report->used_manifest);
    EXPECT_EQ(report->tensors, 40U);
  }
}

TEST_P(StreamingWriterLayouts, AreTheSameFilesWhenOneThreadAdds) {
  ASSERT_THAT(write(out(), in_order(40), 1, options()), IsOk());
  ASSERT_THAT(write(dir_.path() / "again", in_order(40), 1, options()), IsOk());
  EXPECT_EQ(files_below(out()), files_below(dir_.path() / "again"));
}

TEST_P(StreamingWriterLayouts, ReplaceAnOldModelAndItsData) {
  ASSERT_THAT(write(out(), in_order(40), 1, options()), IsOk());
  Options replacing = options();
  replacing.overwrite = Overwrite::kAllow;
  ASSERT_THAT(write(out(), in_order(1), 1, replacing), IsOk());
  EXPECT_EQ(saved(out()), wanted(1));
  EXPECT_EQ(files_below(out()).size(), 3U);  // model, manifest, data
}

TEST_P(StreamingWriterLayouts, TakeTensorsOfEverySource) {
  auto writer = Writer::create(out() / "model.onnx", options());
  ASSERT_THAT(writer, IsOk());
  const auto text = shared_text(content_of(3));
  auto turned = in_memory("turned", DType::kUInt8, {50, 80}, shared_text(content_of(1)));
  turned.strides = {1, 50};
  const auto path = dir_.write("a.bin", "head" + content_of(4));
  std::vector<ProvidedTensor> tensors{in_memory("memory", DType::kFloat32, {kFloats}, text), turned,
                                      ProvidedTensor{.info = {"file", DType::kFloat32, {kFloats}},
                                                     .storage = FileBytes{path, 4, 4000}},
                                      made("made", DType::kFloat32, {kFloats}, content_of(5)),
                                      made("made number", DType::kInt64, {}, "12345678")};
  onnx::ModelProto model = empty_model();
  for (const ProvidedTensor& tensor : tensors) {
    const auto proto = writer->add(tensor);
    ASSERT_THAT(proto, IsOk());
    *model.mutable_graph()->add_initializer() = *proto;
  }
  EXPECT_EQ(model.graph().initializer(4).raw_data(), "12345678");
  ASSERT_THAT(writer->finish(model), IsOk());
  EXPECT_EQ(saved(out()), (std::map<std::string, std::string>{{"memory", content_of(3)},
                                                              {"turned", content_of(1)},
                                                              {"file", content_of(4)},
                                                              {"made", content_of(5)}}));
}

TEST_P(StreamingWriterLayouts, AreReadBackBeforeTheyArePublished) {
  const auto damaged = [&](Verification verification) {
    Options checked = options();
    checked.verification = verification;
    auto writer = Writer::create(out() / "model.onnx", checked);
    auto proto = writer->add("w", DType::kFloat32, std::vector{kFloats}, bytes_of(content_of(0)));
    auto other = writer->add("v", DType::kFloat32, std::vector{kFloats}, bytes_of(content_of(1)));
    onnx::ModelProto model = empty_model();
    *model.mutable_graph()->add_initializer() = *proto;
    *model.mutable_graph()->add_initializer() = *other;
    for (const auto& entry : fs::recursive_directory_iterator(out())) {
      if (entry.is_regular_file()) {
        std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
        char first = 0;
        file.get(first);
        file.seekp(100);
        file.put(first == 'a' ? '!' : first);
      }
    }
    return writer->finish(model);
  };
  EXPECT_THAT(damaged(Verification::kOn),
              FailsWith(ErrorCode::kMismatch, "tensor 'w': the bytes on the disk differ from"));
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_THAT(damaged(Verification::kOff), IsOk());
}

TEST_P(StreamingWriterLayouts, GoOnAfterATensorThatCouldNotBeWritten) {
  auto writer = Writer::create(out() / "model.onnx", options());
  const auto add = [&](ProvidedTensor tensor) { return writer->add(std::move(tensor)); };
  const auto first = add(in_memory("a", DType::kFloat32, {kFloats}, shared_text(content_of(0))));
  ASSERT_THAT(first, IsOk());
  auto broken = made("w", DType::kFloat32, {kFloats}, content_of(1));
  std::get<LazyBytes>(broken.storage).make = [](std::span<std::byte>) -> Status {
    throw std::runtime_error("boom");
  };
  EXPECT_THAT(add(broken), FailsWith(ErrorCode::kIo, "tensor 'w': unexpected: boom"));
  const auto again = add(made("w", DType::kFloat32, {kFloats}, content_of(1)));
  ASSERT_THAT(again, IsOk());
  onnx::ModelProto model = empty_model();
  *model.mutable_graph()->add_initializer() = *first;
  *model.mutable_graph()->add_initializer() = *again;
  ASSERT_THAT(writer->finish(model), IsOk());
  EXPECT_EQ(saved(out()),
            (std::map<std::string, std::string>{{"a", content_of(0)}, {"w", content_of(1)}}));
}

TEST_P(StreamingWriterLayouts, LeaveNothingWhenTheCallerCancels) {
  Options cancelled = options();
  cancelled.progress = [](const Progress& progress) {
    return progress.phase == Phase::kVerify ? Continue::kCancel : Continue::kYes;
  };
  EXPECT_THAT(write(out(), in_order(10), 1, cancelled),
              FailsWith(ErrorCode::kCancelled,
                        out().string() + ": cancelled while verifying; nothing was published"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_P(StreamingWriterLayouts, NeedNoTensorInAFile) {
  auto writer = Writer::create(out() / "model.onnx", options());
  const auto small = writer->add("n", DType::kInt64, {}, bytes_of("12345678"));
  ASSERT_THAT(small, IsOk());
  onnx::ModelProto model = empty_model();
  *model.mutable_graph()->add_initializer() = *small;
  ASSERT_THAT(writer->finish(model), IsOk());
  EXPECT_TRUE(saved(out()).empty());
  EXPECT_THAT(verify_model(out() / "model.onnx"), IsOk());
}

TEST_P(StreamingWriterLayouts, TakeAModelThatLeftItsOtherTensorsInItsFile) {
  auto writer = Writer::create(out() / "model.onnx", options());
  const auto proto =
      writer->add("w", DType::kFloat32, std::vector{kFloats}, bytes_of(content_of(0)));
  ASSERT_THAT(proto, IsOk());
  onnx::ModelProto graph = empty_model();
  *graph.mutable_graph()->add_initializer() = *proto;
  auto* const inside = graph.mutable_graph()->add_initializer();
  inside->set_name("inside");
  inside->set_data_type(onnx::TensorProto::FLOAT);
  inside->add_dims(50'000);
  inside->set_raw_data(std::string(200'000, 'i'));
  const auto model = Model::load(dir_.write("graph.onnx", graph.SerializeAsString()));
  ASSERT_THAT(model, IsOk());
  ASSERT_THAT(writer->finish(*model), IsOk());
  EXPECT_EQ(saved(out())["w"], content_of(0));
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(read_text(out() / "model.onnx")));
  EXPECT_EQ(written.graph().initializer(1).raw_data(), std::string(200'000, 'i'));
}

TEST(StreamingWriter, AlignsTensorsInOneFile) {
  TempDir dir;
  Options options;
  options.layout = Layout::kSingle;
  options.alignment = 4096;
  ASSERT_THAT(write(dir.path(), in_order(3), 1, options), IsOk());
  const auto model = Model::load(dir.path() / "model.onnx").value();
  ASSERT_EQ(model.external_tensors().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(model.external_tensors()[i].location, "model.data");
    EXPECT_EQ(model.external_tensors()[i].offset, 4096 * i);
  }
}

TEST(StreamingWriter, CutsShardsWhereASaveDoes) {
  TempDir dir;
  Options options;
  options.layout = Layout::kShards;
  options.max_shard_bytes = 9000;
  ASSERT_THAT(write(dir.path(), in_order(5), 1, options), IsOk());
  const auto files = files_below(dir.path());
  EXPECT_EQ(files.size(), 5U);
  EXPECT_TRUE(files.contains("model-00001-of-00003.data"));
  EXPECT_TRUE(files.contains("model-00003-of-00003.data"));
  EXPECT_EQ(files.at("model-00003-of-00003.data"), content_of(4));
}

TEST(StreamingWriter, NamesItsDataFileAsAsked) {
  TempDir dir;
  Options options;
  options.layout = Layout::kSingle;
  options.data_name = "model.onnx.data";
  options.overwrite = Overwrite::kAllow;
  ASSERT_THAT(write(dir.path(), in_order(3), 1, options), IsOk());
  EXPECT_TRUE(files_below(dir.path()).contains("model.onnx.data"));
  ASSERT_THAT(write(dir.path(), in_order(3), 1, options), IsOk());
  EXPECT_EQ(files_below(dir.path()).size(), 3U);
  EXPECT_TRUE(files_below(dir.path()).contains("model.onnx.1.data"));
  options.layout = Layout::kPerTensor;
  EXPECT_THAT(
      Writer::create(dir.path() / "model.onnx", options),
      FailsWith(ErrorCode::kInvalidArgument, "applies only to data in files next to the model"));
}

TEST(StreamingWriter, RefusesLayoutsWithoutDataFilesAndOddAlignments) {
  TempDir dir;
  for (const Layout layout : {Layout::kInline, Layout::kLink}) {
    Options options;
    options.layout = layout;
    EXPECT_THAT(Writer::create(dir.path() / "model.onnx", options),
                FailsWith(ErrorCode::kInvalidArgument, "choose another layout"));
  }
  Options options;
  options.layout = Layout::kSingle;
  options.alignment = 100;
  EXPECT_THAT(Writer::create(dir.path() / "model.onnx", options),
              FailsWith(ErrorCode::kInvalidArgument, "alignment 100"));
}

TEST(StreamingWriter, WaitsForTheDiskInEveryLayout) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    TempDir dir;
    Options options;
    options.layout = layout;
    options.max_shard_bytes = 9000;
    ASSERT_THAT(write(dir.path(), in_order(5), 2, options), IsOk());
    const auto report = verify_model(dir.path() / "model.onnx");
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->ok());
  }
}

}  // namespace
}  // namespace onnx_external
