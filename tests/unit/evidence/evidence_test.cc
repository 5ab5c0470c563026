// Whether tensors of a checkpoint, and the data that a graph holds, have the same bytes.
#include "onnx_external/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/graph_facts.h"
#include "onnx_external/save_external.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

std::string transposed(const std::string& bytes, std::size_t rows, std::size_t columns,
                       std::size_t unit = 4) {
  std::string made(bytes.size(), '\0');
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      bytes.copy(&made[(c * rows + r) * unit], unit, (r * columns + c) * unit);
    }
  }
  return made;
}

// A checkpoint and a graph, and what may be asked of them.
class Evidence : public testing::Test {
 protected:
  void open(const std::vector<TestTensor>& tensors, const onnx::ModelProto& graph) {
    const fs::path path = dir_.write("c.pt", torch_zip(tensors));
    open(path, graph);
  }
  void open(const fs::path& path, const onnx::ModelProto& graph) {
    checkpoint_.emplace(open_one(path));
    model_.emplace(Model::load(dir_.write("g.onnx", graph.SerializeAsString())).value());
    evidence_ = mapping_evidence(*model_, *checkpoint_);
  }
  std::uint32_t key(const std::string& name) const {
    for (std::uint32_t i = 0; i < checkpoint_->tensors().size(); ++i) {
      if (checkpoint_->tensors()[i].name == name) {
        return i;
      }
    }
    throw std::runtime_error(name);
  }
  std::uint32_t slot(const std::string& name) const {
    for (std::uint32_t i = 0; i < model_->facts().slots.size(); ++i) {
      if (model_->facts().slots[i].name == name) {
        return i;
      }
    }
    throw std::runtime_error(name);
  }
  Result<bool> same(const std::string& one, const std::string& other) const {
    return evidence_.same_bytes(key(one), key(other));
  }
  Result<bool> holds(const std::string& slot_name, const std::string& key_name,
                     const Recipe& recipe = {}) const {
    return evidence_.slot_holds(slot(slot_name), key(key_name), recipe);
  }

  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<Model> model_;
  MappingEvidence evidence_;
};

const Recipe kTurn = {RecipeStep::transpose()};

TEST_F(Evidence, AClonedTensorHasTheSameBytesAndADifferentOneDoesNot) {
  std::string other = noise(4 * 600'000, 1);
  other.back() = static_cast<char>(other.back() ^ 1);
  open({{.name = "a", .shape = {600, 1000}, .bytes = noise(4 * 600'000, 1)},
        {.name = "b", .shape = {600, 1000}, .bytes = noise(4 * 600'000, 1)},
        {.name = "c", .shape = {600, 1000}, .bytes = other},
        {.name = "d", .shape = {1000, 600}, .bytes = noise(4 * 600'000, 1)},
        {.name = "e", .dtype = DType::kInt32, .shape = {600, 1000}, .bytes = noise(2'400'000, 1)}},
       GraphBuilder().model());
  EXPECT_EQ(same("a", "b"), true);
  EXPECT_EQ(same("b", "a"), true);
  EXPECT_EQ(same("a", "a"), true);
  EXPECT_EQ(same("a", "c"), false);
  EXPECT_EQ(same("a", "d"), false) << "another shape";
  EXPECT_EQ(same("a", "e"), false) << "another type";
}

TEST_F(Evidence, DeflatedAndStridedTensorsAreComparedByTheirValues) {
  const std::string bytes = noise(4 * 12, 1);
  const std::vector<TestTensor> tensors = {{.name = "plain", .shape = {3, 4}, .bytes = bytes},
                                           {.name = "turned",
                                            .shape = {3, 4},
                                            .bytes = transposed(bytes, 3, 4),
                                            .strides = std::vector<std::int64_t>{1, 3}}};
  open(dir_.write("c.pt", torch_zip(tensors, {.deflated = true})), GraphBuilder().model());
  EXPECT_EQ(same("plain", "turned"), true);
}

TEST_F(Evidence, AGraphHoldsAKeyInRawDataInTypedFieldsAndInFiles) {
  const std::string large = noise(4 * 300'000, 1);
  GraphBuilder b;
  b.initializer("cut", kFloat, {300, 1000}, large);
  b.initializer("open", kFloat, {2}, "");
  b.external("outside", kFloat, {300, 1000},
             {{"location", "d.bin"}, {"offset", "16"}, {"length", "1200000"}});
  auto* typed = b.model().mutable_graph()->add_initializer();
  typed->set_name("typed");
  typed->set_data_type(kFloat);
  typed->add_dims(2);
  typed->add_float_data(1.5F);
  typed->add_float_data(-0.0F);
  (void)dir_.write("d.bin", std::string(16, 'x') + large);
  open({{.name = "large", .shape = {300, 1000}, .bytes = large},
        {.name = "two", .shape = {2}, .bytes = f32({1.5F, -0.0F})},
        {.name = "zero", .shape = {2}, .bytes = f32({1.5F, 0.0F})},
        {.name = "half", .dtype = DType::kFloat16, .shape = {2}, .bytes = noise(4, 3)}},
       b.model());
  EXPECT_EQ(holds("cut", "large"), true);
  EXPECT_EQ(holds("outside", "large"), true);
  EXPECT_EQ(holds("typed", "two"), true);
  EXPECT_EQ(holds("typed", "zero"), false) << "bits decide";
  EXPECT_EQ(holds("typed", "half"), false);
  EXPECT_EQ(holds("open", "two"), false);
  EXPECT_EQ(holds("cut", "two"), false);
}

TEST_F(Evidence, ATransposedCopyIsDistinguishedFromAnyOtherMatrix) {
  const std::string bytes = noise(4 * 600'000, 1);
  std::string late = transposed(bytes, 600, 1000);
  late.back() = static_cast<char>(late.back() ^ 1);
  std::string swapped = transposed(bytes, 600, 1000);
  std::swap_ranges(swapped.end() - 4, swapped.end(), swapped.end() - 400);
  GraphBuilder b;
  b.initializer("turned", kFloat, {1000, 600}, transposed(bytes, 600, 1000));
  b.initializer("late", kFloat, {1000, 600}, late);
  b.initializer("swapped", kFloat, {1000, 600}, swapped);
  b.initializer("plain", kFloat, {1000, 600}, bytes);
  open({{.name = "w", .shape = {600, 1000}, .bytes = bytes}}, b.model());
  EXPECT_EQ(holds("turned", "w", kTurn), true);
  EXPECT_EQ(holds("turned", "w", kTurn), true) << "remembered";
  EXPECT_EQ(holds("turned", "w"), false);
  EXPECT_EQ(holds("late", "w", kTurn), false);
  EXPECT_EQ(holds("swapped", "w", kTurn), false);
  EXPECT_EQ(holds("plain", "w", kTurn), false);
}

TEST_F(Evidence, ElementsOfEverySizeAreTransposed) {
  GraphBuilder b;
  std::vector<TestTensor> keys;
  for (const DType dtype :
       {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex128}) {
    const std::string name(torch_name(dtype));
    const std::size_t unit = byte_size(dtype);
    const std::string bytes = noise(15 * unit, 7);
    keys.push_back({.name = name, .dtype = dtype, .shape = {3, 5}, .bytes = bytes});
    b.initializer(name, onnx_data_type(dtype), {5, 3}, transposed(bytes, 3, 5, unit));
  }
  open(keys, b.model());
  for (const TestTensor& tensor : keys) {
    EXPECT_EQ(holds(tensor.name, tensor.name, kTurn), true) << tensor.name;
    EXPECT_EQ(holds(tensor.name, tensor.name, {}), false) << tensor.name;
  }
}

TEST_F(Evidence, ARowIsItsTransposeAndAVectorHasNone) {
  GraphBuilder b;
  b.initializer("column", kFloat, {3, 1}, f32({1, 2, 3}));
  b.initializer("vector", kFloat, {3}, f32({1, 2, 3}));
  open({{.name = "row", .shape = {1, 3}, .bytes = f32({1, 2, 3})},
        {.name = "v", .shape = {3}, .bytes = f32({1, 2, 3})}},
       b.model());
  EXPECT_EQ(holds("column", "row", kTurn), true);
  EXPECT_EQ(holds("column", "row"), true);  // the same elements in another shape
  EXPECT_EQ(holds("vector", "v", kTurn), false);
  EXPECT_EQ(holds("vector", "v"), true);
}

TEST_F(Evidence, AnIdentityHoldsWhatItReadsAcrossGraphs) {
  GraphBuilder b;
  b.input("c", onnx::TensorProto::BOOL, {});
  b.initializer("w", kFloat, {2}, f32({1, 2}));
  b.node("Identity", {"w"}, {"u"}).node("Add", {"u", "w"}, {"y"});
  b.node("If", {"c"}, {"z"}).begin_subgraph("then_branch");
  b.node("Identity", {"w"}, {"inner"}).node("Neg", {"inner"}, {"n"}).end_subgraph();
  open({{.name = "k", .shape = {2}, .bytes = f32({1, 2})}}, b.model());
  EXPECT_EQ(holds("u", "k"), true);
  EXPECT_EQ(holds("inner", "k"), true);
}

TEST_F(Evidence, AFileOfTheGraphThatIsMissingIsAnError) {
  GraphBuilder b;
  b.external("w", kFloat, {2}, {{"location", "gone.bin"}, {"offset", "0"}, {"length", "8"}});
  open({{.name = "k", .shape = {2}, .bytes = f32({1, 2})},
        {.name = "long", .shape = {3}, .bytes = f32({1, 2, 3})}},
       b.model());
  EXPECT_THAT(holds("w", "k"), FailsWith(ErrorCode::kNotFound, "gone.bin"));
  EXPECT_EQ(holds("w", "long"), false) << "nothing has to be read";
}

TEST_F(Evidence, BytesThatAreMadeAreMadeForEachQuestion) {
  const std::string bytes = noise(4 * 600'000, 1);
  const std::string turned = transposed(bytes, 600, 1000);
  GraphBuilder b;
  const std::vector<std::int64_t> dims = {600, 1000};
  b.external("w", kFloat, dims, {{"location", std::string(kInMemoryLocation)}, {"offset", "0"}});
  b.external("v", kFloat, dims, {{"location", std::string(kInMemoryLocation)}, {"offset", "1"}});
  b.external("u", kFloat, dims, {{"location", std::string(kInMemoryLocation)}, {"offset", "2"}});
  const ProvidedOptions one{.max_lazy_at_once = 1};
  checkpoint_.emplace(
      checkpoint_of({made("k", DType::kFloat32, {600, 1000}, bytes),
                     made("same", DType::kFloat32, {600, 1000}, bytes),
                     made("turned", DType::kFloat32, {1000, 600}, turned),
                     made("other", DType::kFloat32, {600, 1000}, noise(4 * 600'000, 2))},
                    one)
          .value());
  model_.emplace(Model::from_proto(b.model(), dir_.path()).value());
  CheckpointAccess::append_existing(
      *checkpoint_, checkpoint_of({made("w", DType::kFloat32, {600, 1000}, bytes),
                                   made("v", DType::kFloat32, {600, 1000}, bytes),
                                   made("u", DType::kFloat32, {600, 1000}, noise(4 * 600'000, 2))},
                                  one)
                        .value());
  evidence_ = mapping_evidence(*model_, *checkpoint_);
  EXPECT_EQ(holds("w", "k"), true);
  EXPECT_EQ(holds("w", "other"), false);
  EXPECT_EQ(holds("w", "turned", kTurn), true);
  EXPECT_EQ(same("k", "same"), true);
  EXPECT_EQ(same("k", "other"), false);
  EXPECT_EQ(evidence_.same_data(slot("w"), slot("v")), true);
  EXPECT_EQ(evidence_.same_data(slot("w"), slot("u")), false);
  EXPECT_EQ(evidence_.key_is_uniform(key("k")), false);
  EXPECT_EQ(evidence_.slot_is_uniform(slot("w")), false);
}

}  // namespace
}  // namespace onnx_external
