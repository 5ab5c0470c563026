#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "onnx_external/writer.h"
#include "save/manifest.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Options = ExternalDataWriter::Options;

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
  auto writer = ExternalDataWriter::open(out, options);
  if (!writer) {
    return fail(writer.error());
  }
  std::vector<onnx::TensorProto> protos(order.size());
  Status status = parallel_for(order.size(), threads, [&](std::size_t i, int) -> Status {
    const std::size_t index = order[i];
    auto proto = (*writer)->add(name_of(index), DType::kFloat32, std::vector{kFloats},
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
  return (*writer)->finish(model);
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

TEST(ExternalDataWriter, WritesTheSameWhateverTheOrderAndTheThreads) {
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

TEST(ExternalDataWriter, ReturnsInitializersThatReferToTheFiles) {
  TempDir dir;
  auto writer = ExternalDataWriter::open(dir.path(), {});
  ASSERT_THAT(writer, IsOk());
  const auto proto = (*writer)->add("w", DType::kFloat32, std::vector<std::int64_t>{10, 100},
                                    bytes_of(content_of(0)));
  ASSERT_THAT(proto, IsOk());
  EXPECT_EQ(proto->data_type(), onnx::TensorProto::FLOAT);
  EXPECT_EQ(proto->data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(proto->dims(1), 100);
  ASSERT_EQ(proto->external_data_size(), 3);
  EXPECT_EQ(proto->external_data(0).value(), "initializers/w");
  EXPECT_EQ(proto->external_data(2).value(), "4000");
  const auto small = (*writer)->add("n", DType::kInt64, {}, bytes_of("12345678"));
  ASSERT_THAT(small, IsOk());
  EXPECT_EQ(small->raw_data(), "12345678");
  const auto none =
      (*writer)->add("z", DType::kFloat32, std::vector<std::int64_t>{0, 3}, bytes_of(""));
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->data_location(), onnx::TensorProto::DEFAULT);
}

TEST(ExternalDataWriter, RefusesATwinAndAWrongNumberOfBytes) {
  TempDir dir;
  auto writer = ExternalDataWriter::open(dir.path(), {});
  ASSERT_THAT(writer, IsOk());
  const std::vector<std::int64_t> shape{kFloats};
  ASSERT_THAT((*writer)->add("w", DType::kFloat32, shape, bytes_of(content_of(0))), IsOk());
  EXPECT_THAT((*writer)->add("w", DType::kFloat32, shape, bytes_of(content_of(0))),
              FailsWith(ErrorCode::kInvalidArgument, "'w'"));
  EXPECT_THAT((*writer)->add("v", DType::kFloat32, shape, bytes_of("short")),
              FailsWith(ErrorCode::kInvalidArgument, "does not have 5 bytes"));
  EXPECT_THAT((*writer)->add("v", DType::kFloat32, std::vector<std::int64_t>{-1}, bytes_of("")),
              FailsWith(ErrorCode::kInvalidArgument, "'v'"));
  EXPECT_THAT((*writer)->add("\xff", DType::kFloat32, shape, bytes_of(content_of(0))),
              FailsWith(ErrorCode::kInvalidArgument, "not UTF-8"));
  EXPECT_THAT(
      (*writer)->add("c", DType::kComplex32, std::vector<std::int64_t>{1}, bytes_of("1234")),
      FailsWith(ErrorCode::kUnsupported, "complex32"));
}

TEST(ExternalDataWriter, RefusesAModelThatDoesNotFitWhatWasAdded) {
  TempDir dir;
  auto writer = ExternalDataWriter::open(dir.path() / "out", {});
  ASSERT_THAT(writer, IsOk());
  auto proto = (*writer)->add("w", DType::kFloat32, std::vector{kFloats}, bytes_of(content_of(0)));
  ASSERT_THAT(proto, IsOk());
  onnx::ModelProto model = empty_model();
  EXPECT_THAT((*writer)->finish(model), FailsWith(ErrorCode::kInvalidArgument, "'w'"));
  *model.mutable_graph()->add_initializer() = *proto;
  proto->set_name("foreign");
  *model.mutable_graph()->add_initializer() = *proto;
  EXPECT_THAT((*writer)->finish(model), FailsWith(ErrorCode::kInvalidArgument, "'foreign'"));
  writer->reset();
  EXPECT_FALSE(fs::exists(dir.path() / "out"));
}

TEST(ExternalDataWriter, ReplacesAnOldModel) {
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

TEST(ExternalDataWriter, RecordsItsTensorsInTheManifest) {
  TempDir dir;
  ASSERT_THAT(write(dir.path(), in_order(3), 1), IsOk());
  const auto manifest = parse_manifest(read_text(dir.path() / "initializers/manifest.json"));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->model_bytes, fs::file_size(dir.path() / "model.onnx"));
  ASSERT_EQ(manifest->tensors.size(), 3U);
  EXPECT_EQ(manifest->tensors[0].slot, "layer.0");
  EXPECT_EQ(manifest->tensors[0].length, 4000U);
}

}  // namespace
}  // namespace onnx_external
