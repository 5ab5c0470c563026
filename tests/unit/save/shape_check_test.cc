// Weights of unknown shape that contradict each other are refused before anything is written.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "onnx_external/save_external.h"
#include "onnx_external/writer.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

onnx::ModelProto two_layers() {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8}).node("MatMul", {"x", "fc1.weight"}, {"a"});
  graph.node("Relu", {"a"}, {"r"}).node("MatMul", {"r", "fc2.weight"}, {"y"});
  graph.output("y", kFloat, {kAnySize, kAnySize});
  return graph.model();
}

std::size_t bytes_in(const Shape& shape) {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t dim : shape) {
    bytes *= static_cast<std::size_t>(dim);
  }
  return bytes;
}

class ShapeCheck : public testing::Test {
 protected:
  // The checkpoint's second weight has that shape.
  Result<SaveReport> save_second(const Shape& shape, RunMode mode = RunMode::kWrite) {
    SaveRequest request;
    request.graph = Model::from_proto(two_layers(), {}).value();
    request.checkpoint = {dir_.write(
        "weights.pt",
        torch_zip({{.name = "fc1.weight", .shape = {8, 16}, .bytes = noise(512, 1)},
                   {.name = "fc2.weight", .shape = shape, .bytes = noise(bytes_in(shape), 2)}}))};
    request.folder = dir_.path() / "out";
    request.options.mode = mode;
    return save(request);
  }

  // A writer's model with a second weight of that shape.
  Status finish_second(const Shape& shape) {
    auto writer = Writer::create(dir_.path() / "out" / "model.onnx");
    if (!writer) {
      return fail(writer.error());
    }
    const Shape first = {8, 16};
    for (const auto& [name, dims] : {std::pair("fc1.weight", first), {"fc2.weight", shape}}) {
      const std::string bytes = noise(bytes_in(dims), 1);
      EXPECT_THAT(writer->add(name, DType::kFloat32, dims, std::as_bytes(std::span(bytes))),
                  IsOk());
    }
    return writer->finish(two_layers());
  }

  [[nodiscard]] bool is_written() const {
    return std::filesystem::exists(dir_.path() / "out" / "model.onnx");
  }

  TempDir dir_;
};

constexpr const char* kMessage =
    "the given graph: weights contradict each other: MatMul 'MatMul_2' cannot have inputs of these "
    "shapes and types: 'r' FLOAT [?, 16] from weight 'fc1.weight' of key 'fc1.weight', "
    "'fc2.weight' FLOAT [20, 4] of key 'fc2.weight'; use the checkpoint that belongs to this graph";

TEST_F(ShapeCheck, WeightsThatFitEachOtherAreSaved) {
  EXPECT_THAT(save_second({16, 4}), IsOk());
  EXPECT_TRUE(is_written());
}

TEST_F(ShapeCheck, WeightsThatContradictEachOtherAreRefusedAndNothingIsWritten) {
  const auto refused = save_second({20, 4});
  EXPECT_THAT(refused, FailsWith(ErrorCode::kMismatch, kMessage));
  EXPECT_THAT(refused, FailsWith(ErrorCode::kMismatch, "--map"));
  EXPECT_FALSE(is_written());
}

TEST_F(ShapeCheck, ADryRunRefusesThemToo) {
  EXPECT_THAT(save_second({16, 4}, RunMode::kDryRun), IsOk());
  EXPECT_THAT(save_second({20, 4}, RunMode::kDryRun), FailsWith(ErrorCode::kMismatch, kMessage));
}

TEST_F(ShapeCheck, AWriterRefusesThemAndTakesAModelThatFits) {
  EXPECT_THAT(finish_second({20, 4}),
              FailsWith(ErrorCode::kMismatch, "weights contradict each other: MatMul 'MatMul_2'"));
  EXPECT_FALSE(is_written());
  EXPECT_THAT(finish_second({16, 4}), IsOk());
  EXPECT_TRUE(is_written());
}

}  // namespace
}  // namespace onnx_external
