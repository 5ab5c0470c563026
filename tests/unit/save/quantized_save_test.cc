// Saves that quantize matrices while they are written: the plan, the parts, and the read-back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "save/packed_json.h"
#include "save/plan_copier.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Finite float32 values.
std::string even_floats(std::size_t count, std::uint32_t seed) {
  std::string bytes(count * sizeof(float), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const float value = static_cast<float>(seed >> 8U) / 8388608.0F - 1.0F;
    std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
  }
  return bytes;
}

// The parts of rows in memory, as the kernel makes them.
std::array<std::string, kMatrixParts> parts_of(const Scheme& scheme, const std::string& rows,
                                               std::int64_t count, std::int64_t columns) {
  const PackedLayout layout = packed_layout(scheme, count, columns).value();
  std::array<std::string, kMatrixParts> parts{std::string(layout.codes.bytes, '\0'),
                                              std::string(layout.scales.bytes, '\0'),
                                              std::string(layout.zero_points.bytes, '\0')};
  const auto bytes = [](std::string& text) { return std::as_writable_bytes(std::span(text)); };
  EXPECT_THAT(quantize_rows(scheme,
                            {.dtype = DType::kFloat32,
                             .columns = static_cast<std::uint64_t>(columns),
                             .values = std::as_bytes(std::span(rows)),
                             .name = "rows"},
                            {bytes(parts[0]), bytes(parts[1]), bytes(parts[2])}),
              IsOk());
  return parts;
}

class QuantizedSave : public testing::Test {
 protected:
  // ids -> table -> x @ first -> x @ second.T -> logits over the table.
  static onnx::ModelProto graph(const std::function<void(GraphBuilder&)>& add_weights) {
    GraphBuilder builder;
    builder.model().mutable_opset_import(0)->set_version(20);
    builder.input("ids", onnx::TensorProto::INT64, {2});
    builder.node("Gather", {"table", "ids"}, {"x"});
    builder.node("MatMul", {"x", "first"}, {"y"}).node("Add", {"y", "bias"}, {"z"});
    builder.node("Transpose", {"second"}, {"second.T"}).node("MatMul", {"z", "second.T"}, {"h"});
    builder.node("Transpose", {"table"}, {"table.T"}).node("MatMul", {"h", "table.T"}, {"logits"});
    builder.output("logits", kFloat, {2, 100});
    add_weights(builder);
    return builder.model();
  }
  Model open_graph() const {
    auto proto = graph([this](GraphBuilder& builder) {
      for (const TestTensor& tensor : tensors_) {
        builder.initializer(tensor.name, kFloat, tensor.shape, "");
      }
    });
    proto.mutable_opset_import(0)->set_version(opset_);
    return Model::from_proto(std::move(proto), {}).value();
  }

  SaveOptions options(int threads = 2) const {
    SaveOptions options;
    options.write.threads = threads;
    options.write.sync = Sync::kNone;
    options.write.overwrite = Overwrite::kAllow;
    options.plan = plan_;
    options.plan.quantize = quantize_;
    return options;
  }
  Result<SaveReport> save(const fs::path& out, int threads = 2) const {
    return save_model_with_external_data({.folder = out}, open_one(file_), open_graph(),
                                         options(threads));
  }
  Result<VerifyReport> verify_against(const fs::path& out) const {
    const Checkpoint checkpoint = open_one(file_);
    const auto expected = expected_tensors(out / "model.onnx", checkpoint, MappingOptions());
    return expected ? verify_model_against(out / "model.onnx", checkpoint, *expected)
                    : Result<VerifyReport>(fail(expected.error()));
  }
  void write_checkpoint() { file_ = dir_.write("c.pt", torch_zip(tensors_)); }
  void SetUp() override { write_checkpoint(); }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
  fs::path file_;
  PlanOptions plan_;
  QuantizeOptions quantize_;
  std::int64_t opset_ = 20;
  std::vector<TestTensor> tensors_ = {
      {.name = "table", .shape = {100, 64}, .bytes = even_floats(6400, 1)},
      {.name = "first", .shape = {64, 3000}, .bytes = even_floats(192'000, 2)},
      {.name = "bias", .shape = {3000}, .bytes = even_floats(3000, 3)},
      {.name = "second", .shape = {64, 3000}, .bytes = even_floats(192'000, 4)},
  };
};

TEST_F(QuantizedSave, WritesThePartsThatTheKernelMakesOfTheRows) {
  ASSERT_THAT(save(out_), IsOk());
  const fs::path data = out_ / "initializers";
  const auto first = parts_of(quantize_.scheme, transposed(tensors_[1].bytes, 64, 3000), 3000, 64);
  EXPECT_EQ(read_text(data / "first.codes"), first[0]);
  EXPECT_EQ(read_text(data / "first.scales"), first[1]);
  EXPECT_EQ(read_text(data / "first.zero_points"), first[2]);
  const auto second = parts_of(quantize_.scheme, tensors_[3].bytes, 64, 3000);
  EXPECT_EQ(read_text(data / "second.codes"), second[0]);
  EXPECT_EQ(read_text(data / "second.zero_points"), second[2]);
  EXPECT_EQ(read_text(data / "bias"), tensors_[2].bytes);
  EXPECT_FALSE(fs::exists(data / "first"));
}

TEST_F(QuantizedSave, StoresATiedTableOnce) {
  const auto report = save(out_);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(fs::exists(out_ / "initializers/table.codes"));
  EXPECT_FALSE(fs::exists(out_ / "initializers/table.table"));
  const auto saved = Model::load(out_ / "model.onnx");
  ASSERT_THAT(saved, IsOk());
  std::map<std::string, Shape> dims;
  for (const ExternalTensor& tensor : saved->external_tensors()) {
    dims[tensor.name] = tensor.dims;
  }
  EXPECT_EQ(dims["table.codes"], (Shape{100, 1, 64}));
  EXPECT_EQ(dims["table.table"], (Shape{100, 64}));
}

TEST_F(QuantizedSave, GivesTheSameFilesWithAnyNumberOfThreads) {
  tensors_[1] = {.name = "first", .shape = {4000, 3000}, .bytes = even_floats(12'000'000, 2)};
  tensors_[0] = {.name = "table", .shape = {100, 4000}, .bytes = even_floats(400'000, 1)};
  tensors_[3] = {.name = "second", .shape = {4000, 3000}, .bytes = even_floats(12'000'000, 4)};
  write_checkpoint();
  quantize_.scheme.steps = 0;
  for (const Layout layout :
       {Layout::kPerTensor, Layout::kSingle, Layout::kShards, Layout::kInline}) {
    plan_.layout = layout;
    std::set<std::map<std::string, std::string>> trees;
    std::set<std::vector<double>> errors;
    for (const int threads : {1, 2, 5}) {
      const fs::path out = dir_.path() / std::to_string(threads);
      const auto report = save(out, threads);
      ASSERT_THAT(report, IsOk());
      std::vector<double> each;
      for (const SavedMatrix& matrix : report->models.front().quantized) {
        each.push_back(matrix.error.value());
      }
      errors.insert(each);
      trees.insert(tree_of(out));
      fs::remove_all(out);
    }
    EXPECT_EQ(trees.size(), 1U);
    EXPECT_EQ(errors.size(), 1U);
  }
}

TEST_F(QuantizedSave, DerivesAllBytesAgainFromTheCheckpoint) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kInline}) {
    plan_.layout = layout;
    ASSERT_THAT(save(out_), IsOk());
    const auto report = verify_against(out_);
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->ok());
    EXPECT_EQ(report->compared + report->inline_compared, 10U);
  }
}

TEST_F(QuantizedSave, DerivesTheCodesOfEachTypeThatDequantizeLinearReads) {
  opset_ = 21;
  quantize_.form = QuantizedForm::kDequantizeLinear;
  for (const char* scheme : {"int4/32", "int4/32, symmetric", "int8/32", "int8/32, zero points"}) {
    quantize_.scheme = parse_scheme(scheme).value();
    for (const Layout layout : {Layout::kSingle, Layout::kInline}) {
      plan_.layout = layout;
      ASSERT_THAT(save(out_), IsOk());
      const auto report = verify_against(out_);
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->ok()) << scheme;
      EXPECT_EQ(report->compared + report->inline_compared, quantize_.scheme.zero_points ? 6U : 5U);
    }
  }
}

TEST_F(QuantizedSave, DerivesAModelWithoutAnyFloatsAgain) {
  GraphBuilder builder;
  builder.input("x", kFloat, {2, 64}).initializer("first", kFloat, {64, 3000}, "");
  builder.node("MatMul", {"x", "first"}, {"y"}).output("y", kFloat, {2, 3000});
  tensors_ = {tensors_[1]};
  write_checkpoint();
  ASSERT_THAT(
      save_model_with_external_data({.folder = out_}, open_one(file_),
                                    Model::from_proto(builder.model(), {}).value(), options()),
      IsOk());
  const auto report = verify_against(out_);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->compared, 2U);  // a head, which has no zero points

  tensors_.push_back({.name = "more", .shape = {64}, .bytes = even_floats(64, 5)});
  write_checkpoint();
  EXPECT_THAT(verify_against(out_), FailsWith(ErrorCode::kNotFound, "more"));
  tensors_ = {{.name = "renamed", .shape = {64, 3000}, .bytes = tensors_[0].bytes}};
  write_checkpoint();
  EXPECT_THAT(verify_against(out_), FailsWith(ErrorCode::kMismatch, "the key 'first' and others"));
}

TEST_F(QuantizedSave, FindsAChangedCodeAndAChangedScheme) {
  ASSERT_THAT(save(out_), IsOk());
  const fs::path codes = out_ / "initializers/second.codes";
  std::string text = read_text(codes);
  text[777] = static_cast<char>(text[777] ^ 1);
  dir_.write("out/initializers/second.codes", text);
  const auto changed = verify_against(out_);
  ASSERT_THAT(changed, IsOk());
  ASSERT_FALSE(changed->ok());
  EXPECT_THAT(changed->findings.front().message, HasSubstr("byte 777"));

  const fs::path second = dir_.path() / "second";
  ASSERT_THAT(save(second), IsOk());
  const fs::path manifest = fs::path("second/initializers") / std::string(kManifestName);
  std::string json = read_text(dir_.path() / manifest);
  for (std::size_t at = 0; (at = json.find("\"steps\": 5", at)) != std::string::npos; ++at) {
    json.replace(at, 10, "\"steps\": 3");
  }
  dir_.write(manifest.string(), json);
  const auto other = verify_against(second);
  ASSERT_THAT(other, IsOk());
  EXPECT_FALSE(other->ok());
}

TEST_F(QuantizedSave, NamesTheFirstByteThatDiffersInEachPart) {
  ASSERT_THAT(save(out_), IsOk());
  for (const char* part : {"codes", "scales", "zero_points"}) {
    const std::string file = std::string("out/initializers/second.") + part;
    std::string text = read_text(dir_.path() / file);
    for (const std::size_t byte : {std::size_t{801}, std::size_t{1200}}) {
      text[byte] = static_cast<char>(text[byte] ^ 1);
    }
    dir_.write(file, text);
  }
  const auto report = verify_against(out_);
  ASSERT_THAT(report, IsOk());
  std::set<std::string> parts;
  for (const Finding& finding : report->findings) {
    if (finding.code == FindingCode::kBytesDiffer) {
      EXPECT_THAT(finding.message, HasSubstr("byte 801 "));
      parts.insert(finding.tensor);
    }
  }
  EXPECT_THAT(parts, ElementsAre("second.codes", "second.scales", "second.zero_points"));

  fs::remove(out_ / "initializers/second.scales");
  const auto missing = verify_against(out_);
  ASSERT_THAT(missing, IsOk());
  EXPECT_FALSE(missing->ok());
}

TEST_F(QuantizedSave, FindsManifestsThatLieAboutAMatrix) {
  ASSERT_THAT(save(out_), IsOk());
  const std::string manifest = "out/initializers/" + std::string(kManifestName);
  const std::string before = read_text(dir_.path() / manifest);
  const std::string slot = R"("slot": "first.codes")";
  for (const auto& [text, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("part": "codes")", R"("part": "scales")"},
           {R"("part": "codes")", R"("part": "zero_points")"},
           {R"("rows": 3000, "columns": 64)", R"("rows": 64, "columns": 3000)"},
           {R"("rows": 3000, "columns": 64)", R"("rows": 1500, "columns": 128)"},
           {R"("rows": 3000, "columns": 64)", R"("rows": 192000, "columns": 1)"},
           {R"("rows": 3000)", R"("rows": 9223372036854775807)"},
           {R"("columns": 64)", R"("columns": 4611686018427387904)"},
           {R"("bits": 4)", R"("bits": 8)"},
           {R"("steps": 5)", R"("steps": 3)"},
           {R"("block": 64)", R"("block": 32)"},
           {R"("zero_points": true)", R"("zero_points": false)"},
           {R"("recipe": ["transpose"], )", ""},
           {R"("recipe": ["transpose"])", R"("recipe": [{"reshape": [64, 3000]}])"},
           {R"("key": "first")", R"("key": "second")"},
           {R"("key": "first")", R"("key": "bias")"},
       }) {
    const std::size_t at = before.find(text, before.find(slot));
    ASSERT_NE(at, std::string::npos) << text;
    std::string json = before;
    json.replace(at, text.size(), other);
    dir_.write(manifest, json);
    const auto report = verify_against(out_);
    EXPECT_FALSE(report && report->ok()) << other;
  }
  dir_.write(manifest, before);
  tensors_[1].dtype = DType::kInt64;
  tensors_[1].bytes += tensors_[1].bytes;
  write_checkpoint();
  const auto integers = verify_against(out_);
  EXPECT_FALSE(integers && integers->ok());
}

TEST_F(QuantizedSave, ReportsMatricesWithTheirErrorsAndFloatsWithReasons) {
  const auto report = save(out_);
  ASSERT_THAT(report, IsOk());
  const SavedModel& model = report->models.front();
  std::vector<std::string> names;
  for (const SavedMatrix& matrix : model.quantized) {
    names.push_back(matrix.weight + " " + matrix.role + " " + scheme_text(matrix.scheme));
    EXPECT_GT(matrix.error.value(), matrix.scheme.bits == 8 ? 0.001 : 0.03);
    EXPECT_LT(matrix.error.value(), matrix.scheme.bits == 8 ? 0.01 : 0.12);
    EXPECT_EQ(matrix.key, matrix.weight);
  }
  EXPECT_THAT(names, ElementsAre("table head int8/64, symmetric, nearest",
                                 "first linear int4/64, zero points, 5 steps",
                                 "second linear int4/64, zero points, 5 steps"));
  ASSERT_EQ(model.floats.size(), 1U);
  EXPECT_EQ(model.floats.front().weight, "bias");
  EXPECT_EQ(model.floats.front().reason, "it is not a matrix");
  EXPECT_EQ(model.floats.front().bytes, 12'000U);
}

TEST_F(QuantizedSave, SaysWhichVersionRunsTheModel) {
  const auto notes = [&] { return save(out_).value().notes; };
  EXPECT_THAT(notes(), ElementsAre("the quantized model needs ONNX Runtime 1.24 or newer"));
  quantize_.head = HeadWeights::kFloat;
  EXPECT_THAT(notes(), ElementsAre("the quantized model needs ONNX Runtime 1.20 or newer"));
  quantize_.scheme = default_scheme(8);
  EXPECT_THAT(notes(), ElementsAre("the quantized model needs ONNX Runtime 1.22 or newer"));
  quantize_.scheme = default_scheme(4);
  quantize_.scheme.block = 256;
  EXPECT_THAT(notes(), ElementsAre("the quantized model needs ONNX Runtime 1.20 or newer",
                                   "4-bit codes in blocks of 256 run only on CPUs"));
}

TEST_F(QuantizedSave, EstimatesErrorsInADryRunFromAFewRows) {
  const auto full = save(out_);
  ASSERT_THAT(full, IsOk());
  SaveOptions dry = options();
  dry.mode = RunMode::kDryRun;
  const auto report =
      save_model_with_external_data({.folder = out_}, open_one(file_), open_graph(), dry);
  ASSERT_THAT(report, IsOk());
  for (std::size_t i = 0; i < report->models.front().quantized.size(); ++i) {
    const SavedMatrix& sampled = report->models.front().quantized[i];
    const SavedMatrix& measured = full->models.front().quantized[i];
    EXPECT_NEAR(sampled.error.value(), measured.error.value(), 0.1 * measured.error.value());
    EXPECT_EQ(sampled.bytes, measured.bytes);
  }
}

TEST_F(QuantizedSave, NamesTheElementThatNoCodeRepresents) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&tensors_[3].bytes[(7 * 3000 + 11) * sizeof(float)], &nan, sizeof(float));
  write_checkpoint();
  const auto report = save(out_);
  EXPECT_THAT(report, FailsWith(ErrorCode::kUnsupported, "second"));
  EXPECT_THAT(report.error().message, HasSubstr("row 7, column 11"));
  EXPECT_TRUE(!fs::exists(out_) || fs::is_empty(out_));
}

TEST_F(QuantizedSave, KeepsFloatsThatTheOptionsName) {
  quantize_.keep_float = {"sec*"};
  quantize_.head = HeadWeights::kFloat;
  const auto report = save(out_);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->models.front().quantized.size(), 1U);
  EXPECT_EQ(read_text(out_ / "initializers/second"), tensors_[3].bytes);
  EXPECT_EQ(read_text(out_ / "initializers/table"), tensors_[0].bytes);
  const auto verified = verify_against(out_);
  ASSERT_THAT(verified, IsOk());
  EXPECT_TRUE(verified->ok());
}

TEST_F(QuantizedSave, StoresAndDerivesSingleWeightsByTheirOwnSchemes) {
  quantize_.weights = {parse_weight_scheme("sec*=int8/32, zero points").value(),
                       parse_weight_scheme("table=int4/16, nearest").value()};
  ASSERT_THAT(save(out_), IsOk());
  const auto second = parts_of(quantize_.weights[0].scheme, tensors_[3].bytes, 64, 3000);
  EXPECT_EQ(read_text(out_ / "initializers/second.codes"), second[0]);
  EXPECT_EQ(read_text(out_ / "initializers/second.zero_points"), second[2]);
  const auto table = parts_of(quantize_.weights[1].scheme, tensors_[0].bytes, 100, 64);
  EXPECT_EQ(read_text(out_ / "initializers/table.codes"), table[0]);
  const auto first = parts_of(quantize_.scheme, transposed(tensors_[1].bytes, 64, 3000), 3000, 64);
  EXPECT_EQ(read_text(out_ / "initializers/first.codes"), first[0]);
  const auto verified = verify_against(out_);
  ASSERT_THAT(verified, IsOk());
  EXPECT_TRUE(verified->ok());
  EXPECT_EQ(verified->compared, 11U);

  quantize_.weights.push_back(parse_weight_scheme("third=int8").value());
  EXPECT_THAT(save(dir_.path() / "more"), FailsWith(ErrorCode::kNotFound, "'third'"));
  EXPECT_FALSE(fs::exists(dir_.path() / "more" / "model.onnx"));
}

TEST_F(QuantizedSave, RefusesWhatItCannotDo) {
  plan_.layout = Layout::kLink;
  EXPECT_THAT(save(out_), FailsWith(ErrorCode::kInvalidArgument, "cannot be linked"));
  plan_.layout = Layout::kPerTensor;
  quantize_.scheme.block = 48;
  EXPECT_THAT(save(out_), FailsWith(ErrorCode::kInvalidArgument, "48"));
  quantize_.scheme.block = 64;
  quantize_.keep_float = {"*"};
  EXPECT_THAT(save(out_), FailsWith(ErrorCode::kUnsupported, "nothing to quantize"));
}

// --- resuming, teams
// ------------------------------------------------------------------------------

TEST_F(QuantizedSave, MakesAllPartsAgainIfOneOfThemIsDamaged) {
  tensors_[1] = {.name = "first", .shape = {64, 60'000}, .bytes = even_floats(3'840'000, 2)};
  tensors_[2] = {.name = "bias", .shape = {60'000}, .bytes = even_floats(60'000, 3)};
  tensors_[3] = {.name = "second", .shape = {64, 60'000}, .bytes = even_floats(3'840'000, 4)};
  write_checkpoint();
  ASSERT_THAT(save(dir_.path() / "clean"), IsOk());
  const pid_t child = ::fork();
  if (child == 0) {
    SaveOptions dying = options(1);
    dying.before_publish = []() -> Status { ::_exit(0); };
    (void)save_model_with_external_data({.folder = out_}, open_one(file_), open_graph(), dying);
    ::_exit(1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_EQ(state, 0);
  fs::path staging;
  for (const auto& entry : fs::directory_iterator(out_)) {
    staging = entry.path();
  }
  const fs::path scales = staging / "initializers/first.scales";
  std::string text = read_text(scales);
  ASSERT_FALSE(text.empty());
  text[5] = static_cast<char>(text[5] ^ 1);
  dir_.write(scales.lexically_relative(dir_.path()).string(), text);
  const auto report = save(out_, 1);
  ASSERT_THAT(report, IsOk());
  EXPECT_GT(report->bytes_resumed, 0U);
  EXPECT_EQ(tree_of(out_), tree_of(dir_.path() / "clean"));
}

TEST_F(QuantizedSave, IsWrittenByATeamAsByOneProcess) {
  ASSERT_THAT(save(dir_.path() / "clean"), IsOk());
  constexpr int kSize = 3;
  std::vector<std::string> texts(kSize);
  std::barrier meeting(kSize);
  std::vector<std::thread> members;
  std::vector<Status> ends(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    members.emplace_back([&, rank] {
      const Team team{rank, kSize, [&, rank](std::string text) {
                        texts[static_cast<std::size_t>(rank)] = std::move(text);
                        meeting.arrive_and_wait();
                        std::vector<std::string> all = texts;
                        meeting.arrive_and_wait();
                        return all;
                      }};
      SaveOptions own = options();
      own.write.team = &team;
      const auto report =
          save_model_with_external_data({.folder = out_}, open_one(file_), open_graph(), own);
      ends[static_cast<std::size_t>(rank)] = report ? Status() : Status(fail(report.error()));
    });
  }
  for (std::thread& member : members) {
    member.join();
  }
  for (const Status& end : ends) {
    EXPECT_THAT(end, IsOk());
  }
  EXPECT_EQ(tree_of(out_), tree_of(dir_.path() / "clean"));
}

// --- weights that the model holds
// -----------------------------------------------------------------

TEST_F(QuantizedSave, TakesTheWeightsThatAModelHolds) {
  ASSERT_THAT(save(dir_.path() / "clean"), IsOk());
  std::string all;
  const onnx::ModelProto external = graph([&](GraphBuilder& builder) {
    for (const TestTensor& tensor : tensors_) {
      builder.external(tensor.name, kFloat, tensor.shape,
                       {{"location", "weights"},
                        {"offset", std::to_string(all.size())},
                        {"length", std::to_string(tensor.bytes.size())}});
      all += tensor.bytes;
    }
  });
  dir_.write("weights", all);
  dir_.write("external.onnx", external.SerializeAsString());
  onnx::ModelProto held = graph([&](GraphBuilder& builder) {
    for (const TestTensor& tensor : tensors_) {
      builder.initializer(tensor.name, kFloat, tensor.shape, tensor.bytes);
    }
  });
  dir_.write("inline.onnx", held.SerializeAsString());
  onnx::TensorProto& typed = *held.mutable_graph()->mutable_initializer(3);
  typed.mutable_float_data()->Resize(192'000, 0);
  std::memcpy(typed.mutable_float_data()->mutable_data(), tensors_[3].bytes.data(),
              tensors_[3].bytes.size());
  typed.clear_raw_data();
  dir_.write("typed.onnx", held.SerializeAsString());

  const auto codes = [&](const fs::path& out) {
    std::map<std::string, std::string> files = tree_of(out / "initializers");
    files.erase(std::string(kManifestName));
    return files;
  };
  for (const char* name : {"external.onnx", "inline.onnx", "typed.onnx"}) {
    const fs::path out = dir_.path() / (std::string(name) + ".out");
    ASSERT_THAT(relayout_model({.folder = out}, dir_.path() / name, options()), IsOk()) << name;
    EXPECT_EQ(codes(out), codes(dir_.path() / "clean")) << name;
    EXPECT_TRUE(verify_model(out / "model.onnx").value().ok());
  }
  ASSERT_THAT(relayout_model({.folder = out_}, held, options()), IsOk());
  EXPECT_THAT(verify_against(out_), FailsWith(ErrorCode::kMismatch, "weights in the float model"));
  EXPECT_EQ(codes(out_), codes(dir_.path() / "clean"));
}

TEST_F(QuantizedSave, SharesTheCodesOfModelsThatShareAKey) {
  std::vector<GraphToSave> graphs{{"a.onnx", open_graph()}, {"b.onnx", open_graph()}};
  const auto report =
      save_graphs_with_external_data({.folder = out_}, open_one(file_), graphs, options());
  ASSERT_THAT(report, IsOk());
  std::uint64_t bytes = 0;
  for (const SavedModel& model : report->models) {
    bytes += model.bytes;
    EXPECT_EQ(model.quantized.size(), 3U);
  }
  EXPECT_EQ(bytes, 2 * report->bytes);
}

// --- plans and manifests
// --------------------------------------------------------------------------

TEST_F(QuantizedSave, PlansThePartsOfAMatrixBehindEachOther) {
  plan_.layout = Layout::kSingle;
  const Model model = open_graph();
  const Checkpoint checkpoint = open_one(file_);
  PlanOptions planned = plan_;
  planned.quantize = quantize_;
  const auto plan =
      plan_save(model, checkpoint, map_by_name(model, checkpoint), {.folder = out_}, planned, {});
  ASSERT_THAT(plan, IsOk());
  std::vector<std::string> passes;
  for (std::uint32_t range = 0; range < plan->ranges.size(); ++range) {
    EXPECT_EQ(plan->ranges[range].bytes, tensor_of(*plan, range).nbytes);
  }
  for (const Pass& pass : passes_of(*plan)) {
    passes.push_back(tensor_of(*plan, pass.head).name + " " + std::to_string(pass.ranges));
  }
  EXPECT_THAT(passes, ElementsAre("table.codes 2", "first.codes 3", "bias 1", "second.codes 3"));
}

TEST(PackedJson, ReadsWhatItWrites) {
  for (const MatrixPart part : {MatrixPart::kCodes, MatrixPart::kScales, MatrixPart::kZeroPoints}) {
    const PackedTensor packed{default_scheme(4), part, 33, 65};
    EXPECT_EQ(parse_packed(parse_json(packed_json(packed), 4).value()).value(), packed);
  }
}

TEST(PackedJson, TakesCodesOfFourBitsInBytesOrAlone) {
  const std::int32_t kUInt4 = onnx_data_type(DType::kUInt4);
  const std::int32_t kUInt8 = onnx_data_type(DType::kUInt8);
  const PackedTensor codes{default_scheme(4), MatrixPart::kCodes, 8, 64};
  EXPECT_TRUE(is_packed_type(codes, kUInt4));
  EXPECT_TRUE(is_packed_type(codes, kUInt8));
  EXPECT_FALSE(is_packed_type(codes, onnx_data_type(DType::kInt8)));
  EXPECT_FALSE(is_packed_type({default_scheme(8), MatrixPart::kCodes, 8, 64}, kUInt4));
  EXPECT_FALSE(is_packed_type({default_scheme(4), MatrixPart::kScales, 8, 64}, kUInt8));
}

TEST(PackedJson, RejectsInvalidForms) {
  const std::string scheme =
      R"({"bits": 8, "block": 32, "zero_points": false, "steps": 0, "scales": "float32"})";
  const auto parsed = [&](const std::string& part, const std::string& rows) {
    return parse_packed(parse_json(R"({"part": ")" + part + R"(", "rows": )" + rows +
                                       R"(, "columns": 64, "scheme": )" + scheme + "}",
                                   4)
                            .value());
  };
  EXPECT_THAT(parsed("codes", "8"), IsOk());
  EXPECT_THAT(parsed("zero_points", "8"), FailsWith(ErrorCode::kCorrupt, "part"));
  EXPECT_THAT(parsed("code", "8"), FailsWith(ErrorCode::kCorrupt, "part"));
  EXPECT_THAT(parsed("codes", "0"), FailsWith(ErrorCode::kCorrupt, "rows"));
  EXPECT_THAT(parsed("codes", "9223372036854775807"), FailsWith(ErrorCode::kCorrupt, ""));
  const std::string wide =
      R"({"part": "codes", "rows": 8, "columns": 1048577, "scheme": )" + scheme;
  EXPECT_THAT(parse_packed(parse_json(wide + "}", 4).value()),
              FailsWith(ErrorCode::kCorrupt, "columns"));
  EXPECT_THAT(parse_packed(parse_json(R"({"part": "codes"})", 4).value()),
              FailsWith(ErrorCode::kCorrupt, "scheme"));
}

}  // namespace
}  // namespace onnx_external
