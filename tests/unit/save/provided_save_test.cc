// Saves of tensors that are in no checkpoint file.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/storage/checkpoint_access.h"
#include "jobs/plan_models.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<ProvidedTensor>;
using Entry = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kLargeBytes = 1'200'000;

// Where the tensors of a save come from: keys of a checkpoint, or data of the model itself.
enum class Route { kKeys, kModel };

std::string route_name(Route route) {
  return route == Route::kKeys ? "Keys" : "Model";
}

SaveOptions quick() {
  SaveOptions options;
  options.write.sync = Sync::kNone;
  options.write.threads = 2;
  return options;
}

class ProvidedSave : public testing::Test {
 protected:
  Result<SaveReport> save(Route route, Tensors tensors, const SaveOptions& options = quick()) {
    if (route == Route::kKeys) {
      auto model = Model::from_proto(graph_for_keys(tensors), {});
      auto checkpoint = checkpoint_of(std::move(tensors));
      return checkpoint ? save_model_with_external_data({.folder = out_}, *std::move(checkpoint),
                                                        *std::move(model), options)
                        : fail(checkpoint.error());
    }
    const auto graph = graph_of_provided(tensors);
    return save_provided({.folder = out_}, graph, std::move(tensors), options);
  }

  // Flips a bit of the first data file below the test's folder.
  void damage_staged() const {
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path())) {
      if (entry.is_regular_file() && entry.file_size() == 4000) {
        std::string bytes = read_text(entry.path());
        bytes[7] = static_cast<char>(bytes[7] ^ 1);
        std::ofstream(entry.path(), std::ios::binary | std::ios::in) << bytes;
      }
    }
  }

  // The bytes of each tensor of the saved model.
  std::map<std::string, std::string> saved() const {
    std::map<std::string, std::string> bytes;
    const auto model = Model::load(out_ / "model.onnx");
    EXPECT_THAT(model, IsOk());
    for (const ExternalTensor& tensor : model->external_tensors()) {
      bytes[tensor.name] = read_text(out_ / tensor.location).substr(tensor.offset, tensor.length);
    }
    const auto whole = model->serialize();
    onnx::ModelProto proto;
    EXPECT_TRUE(proto.ParseFromString(*whole));
    for (const auto& tensor : proto.graph().initializer()) {
      if (tensor.data_location() != onnx::TensorProto::EXTERNAL) {
        bytes[tensor.name()] = tensor.raw_data();
      }
    }
    return bytes;
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

class ProvidedSaveBothWays : public ProvidedSave, public testing::WithParamInterface<Route> {};
INSTANTIATE_TEST_SUITE_P(ProvidedSave, ProvidedSaveBothWays,
                         testing::Values(Route::kKeys, Route::kModel),
                         [](const auto& test) { return route_name(test.param); });

// One tensor of every kind of source, and the bytes that it must have in the model.
struct Zoo {
  Tensors tensors;
  std::map<std::string, std::string> bytes;
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
};

Zoo zoo(const TempDir& dir) {
  Zoo zoo;
  const auto add = [&](ProvidedTensor tensor, std::string bytes) {
    zoo.bytes[tensor.info.name] = std::move(bytes);
    zoo.tensors.push_back(std::move(tensor));
  };
  const auto large = shared_text(noise(kLargeBytes, 1));
  add(in_memory("memory", DType::kFloat32, {300, 1000}, large), *large);
  add(in_memory("tied", DType::kFloat32, {300, 1000}, large), *large);
  auto turned = in_memory("turned", DType::kFloat32, {1000, 300}, large);
  turned.strides = {1, 1000};
  add(turned, transposed(*large, 300, 1000, 4));
  auto part = in_memory("part", DType::kFloat32, {10, 1000}, large);
  part.storage_offset = 5000 * 4;
  add(part, large->substr(5000 * 4, 40'000));
  const std::string file = noise(300'000, 2);
  const fs::path path = dir.write("weights.bin", "head" + file);
  add({.info = {"file", DType::kFloat16, {150'000}}, .storage = FileBytes{path, 4, 300'000}}, file);
  add(made("made", DType::kFloat32, {100, 750}, noise(300'000, 3), zoo.calls), noise(300'000, 3));
  auto made_turned = made("made_turned", DType::kInt16, {400, 300}, noise(240'000, 4), zoo.calls);
  made_turned.strides = {1, 400};
  add(std::move(made_turned), transposed(noise(240'000, 4), 300, 400, 2));
  const auto numbers = shared_text(std::string(8, '\0') + std::string("\0\0\x80\x3f", 4));
  auto negated = in_memory("negated", DType::kFloat32, {3}, numbers);
  negated.neg = true;
  add(negated, std::string("\0\0\0\x80\0\0\0\x80\0\0\x80\xbf", 12));
  add(in_memory("steps", DType::kInt64, {}, shared_text(noise(8, 5))), noise(8, 5));
  add(made("made_steps", DType::kInt64, {1}, noise(8, 6), zoo.calls), noise(8, 6));
  add(in_memory("none", DType::kFloat32, {0, 4}, shared_text("")), "");
  return zoo;
}

TEST_P(ProvidedSaveBothWays, WritesEverySourceInEveryLayout) {
  const auto layouts = {Layout::kPerTensor, Layout::kSingle, Layout::kShards, Layout::kInline};
  for (const Layout layout : layouts) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(layout) << " by " << threads);
      fs::remove_all(out_);
      Zoo given = zoo(dir_);
      SaveOptions options = quick();
      options.plan.layout = layout;
      if (layout == Layout::kShards) {
        options.plan.max_shard_bytes = 1'500'000;
      }
      options.write.threads = threads;
      const auto report = save(GetParam(), given.tensors, options);
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->verified);
      EXPECT_EQ(*given.calls, 3);
      EXPECT_EQ(saved(), given.bytes);
      EXPECT_TRUE(layout == Layout::kInline || is_complete(out_));
    }
  }
}

TEST_P(ProvidedSaveBothWays, WritesTheSameBytesWithAnyNumberOfThreads) {
  std::map<std::string, std::string> first;
  for (const int threads : {1, 2, 7}) {
    fs::remove_all(out_);
    SaveOptions options = quick();
    options.plan.layout = Layout::kSingle;
    options.write.threads = threads;
    ASSERT_THAT(save(GetParam(), zoo(dir_).tensors, options), IsOk());
    const auto files = tree_of(out_);
    first = first.empty() ? files : first;
    EXPECT_EQ(files, first);
  }
}

TEST_P(ProvidedSaveBothWays, StoresTiedTensorsOnce) {
  const auto large = shared_text(noise(kLargeBytes, 1));
  const Tensors tensors{in_memory("a", DType::kFloat32, {300, 1000}, large),
                        in_memory("b", DType::kFloat32, {300, 1000}, large)};
  const auto report = save(GetParam(), tensors);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, kLargeBytes);
  EXPECT_EQ(saved()["b"], *large);
}

TEST_P(ProvidedSaveBothWays, KeepsASquareMatrixAndItsTransposeApart) {
  const auto square = shared_text(noise(100 * 100 * 4, 1));
  auto turned = in_memory("turned", DType::kFloat32, {100, 100}, square);
  turned.strides = {1, 100};
  const auto report =
      save(GetParam(), {in_memory("plain", DType::kFloat32, {100, 100}, square), turned});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 80'000U);
  EXPECT_EQ(saved()["turned"], transposed(*square, 100, 100, 4));
}

TEST_P(ProvidedSaveBothWays, FindsEqualBytesInMemoryIfAsked) {
  SaveOptions options = quick();
  options.plan.dedup = Dedup::kContent;
  const auto report = save(GetParam(),
                           {in_memory("a", DType::kFloat32, {1000}, shared_text(noise(4000, 1))),
                            in_memory("b", DType::kFloat32, {1000}, shared_text(noise(4000, 1)))},
                           options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 4000U);
}

TEST_P(ProvidedSaveBothWays, RefusesToMakeATensorBeforeItIsWritten) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const Tensors tensors{made("w", DType::kFloat32, {1000}, noise(4000, 1), calls)};
  SaveOptions options = quick();
  options.plan.dedup = Dedup::kContent;
  EXPECT_THAT(save(GetParam(), tensors, options),
              FailsWith(ErrorCode::kInvalidArgument, "tensor 'w': its bytes are produced once"));
  EXPECT_EQ(*calls, 0);
}

TEST_P(ProvidedSaveBothWays, TakesChecksums) {
  SaveOptions options = quick();
  options.write.checksum = Checksum::kSha1;
  Zoo given = zoo(dir_);
  ASSERT_THAT(save(GetParam(), given.tensors, options), IsOk());
  EXPECT_EQ(saved(), given.bytes);
}

// Memory that changes when the copying is done, before it is compared.
class ChangingMemory : public ProvidedSaveBothWays {
 protected:
  Result<SaveReport> save_while_changing(ProvidedTensor tensor, const SharedText& text,
                                         Layout layout) {
    SaveOptions options = quick();
    options.plan.layout = layout;
    options.write.progress = [text, changed = false](const Progress& progress) mutable {
      const bool is_copied =
          progress.phase == Phase::kCopy && progress.bytes_done == progress.bytes_total;
      if (is_copied && !std::exchange(changed, true)) {
        (*text)[100] = static_cast<char>((*text)[100] ^ 1);
      }
      return Continue::kYes;
    };
    return save(GetParam(), {std::move(tensor)}, options);
  }
};
INSTANTIATE_TEST_SUITE_P(ProvidedSave, ChangingMemory, testing::Values(Route::kKeys, Route::kModel),
                         [](const auto& test) { return route_name(test.param); });

TEST_P(ChangingMemory, IsFoundAndNothingIsPublished) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kInline}) {
    const auto text = shared_text(noise(4000, 1));
    EXPECT_THAT(save_while_changing(in_memory("w", DType::kFloat32, {1000}, text), text, layout),
                FailsWith(ErrorCode::kMismatch, "'w'"));
    EXPECT_TRUE(fs::is_empty(dir_.path()) || names_in(dir_.path()).empty());
  }
}

TEST_P(ChangingMemory, IsFoundBehindAStridedView) {
  const auto text = shared_text(noise(4000, 1));
  auto turned = in_memory("turned", DType::kFloat32, {10, 100}, text);
  turned.strides = {1, 10};
  EXPECT_THAT(save_while_changing(turned, text, Layout::kPerTensor),
              FailsWith(ErrorCode::kMismatch, "'turned'"));
}

TEST_P(ProvidedSaveBothWays, LeavesNothingWhenItIsCancelled) {
  SaveOptions options = quick();
  options.write.progress = [](const Progress&) { return Continue::kCancel; };
  auto tensors = zoo(dir_).tensors;
  const auto before = names_in(dir_.path());
  EXPECT_THAT(save(GetParam(), std::move(tensors), options),
              FailsWith(ErrorCode::kCancelled, ": cancelled while "));
  EXPECT_EQ(names_in(dir_.path()), before);
}

TEST_P(ProvidedSaveBothWays, LeavesNothingWhenATensorCannotBeMade) {
  const auto with = [](std::function<Status(std::span<std::byte>)> make) {
    return Tensors{in_memory("a", DType::kFloat32, {1000}, shared_text(noise(4000, 1))),
                   {.info = {"w", DType::kFloat32, {1000}}, .storage = LazyBytes{4000, make}}};
  };
  EXPECT_THAT(save(GetParam(), with([](std::span<std::byte>) -> Status {
                     return fail(ErrorCode::kNotFound, "the device is gone");
                   })),
              FailsWith(ErrorCode::kNotFound, "tensor 'w': the device is gone"));
  EXPECT_THAT(save(GetParam(),
                   with([](std::span<std::byte>) -> Status { throw std::runtime_error("boom"); })),
              FailsWith(ErrorCode::kIo, "tensor 'w': unexpected: boom"));
  EXPECT_TRUE(names_in(dir_.path()).empty());
}

TEST_P(ProvidedSaveBothWays, FindsDataFilesThatChangeAfterTheyWereMade) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle}) {
    SaveOptions options = quick();
    options.plan.layout = layout;
    options.write.progress = [&, damaged = false](const Progress& progress) mutable {
      const bool is_copied =
          progress.phase == Phase::kCopy && progress.bytes_done == progress.bytes_total;
      if (is_copied && !std::exchange(damaged, true)) {
        damage_staged();
      }
      return Continue::kYes;
    };
    EXPECT_THAT(save(GetParam(), {made("w", DType::kFloat32, {1000}, noise(4000, 1))}, options),
                FailsWith(ErrorCode::kMismatch,
                          "its CRC-32 differs from that of the bytes that were produced"));
  }
}

TEST_P(ProvidedSaveBothWays, HoldsNoMoreMadeTensorsThanAskedFor) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  Tensors tensors;
  for (int i = 0; i < 20; ++i) {
    auto tensor = made("w" + std::to_string(i), DType::kFloat32, {1000}, std::string(4000, 'x'));
    std::get<LazyBytes>(tensor.storage).make = [&](std::span<std::byte> out) {
      const int now = ++running;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      std::fill(out.begin(), out.end(), std::byte{1});
      --running;
      return Status();
    };
    tensors.push_back(std::move(tensor));
  }
  SaveOptions options = quick();
  options.write.threads = 8;
  ASSERT_THAT(save(GetParam(), tensors, options), IsOk());
  EXPECT_LE(most, ProvidedOptions().max_lazy_at_once);
}

std::ptrdiff_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

TEST_P(ProvidedSaveBothWays, TakesRangesOfMoreFilesThanMayBeOpen) {
  Tensors tensors;
  std::map<std::string, std::string> bytes;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "w" + std::to_string(i);
    const auto path = dir_.write(name + ".bin", noise(404, static_cast<std::uint32_t>(i + 1)));
    bytes[name] = noise(404, static_cast<std::uint32_t>(i + 1)).substr(4);
    tensors.push_back({.info = {name, DType::kFloat32, {100}}, .storage = FileBytes{path, 4, 400}});
  }
  tensors.push_back(tensors.back());
  tensors.back().info.name = "tied";
  bytes["tied"] = bytes["w299"];
  const auto before = open_files();
  {
    const auto checkpoint = checkpoint_of(tensors);
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_LE(open_files(), before + 128);
  }
  const auto report = save(GetParam(), tensors);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(saved(), bytes);
  const auto files = names_in(out_ / "initializers");
  EXPECT_EQ(std::count_if(files.begin(), files.end(),
                          [](const std::string& name) { return name.find("json") == name.npos; }),
            300)
      << "tied ranges share a file";
  EXPECT_EQ(open_files(), before);
}

TEST_F(ProvidedSave, FindsThatAFileChangedThatWasClosedMeanwhile) {
  Tensors tensors;
  for (int i = 0; i < 130; ++i) {
    const auto path = dir_.write(std::to_string(i) + ".bin", noise(8, 1));
    tensors.push_back({.info = {"w" + std::to_string(i), DType::kFloat32, {2}},
                       .storage = FileBytes{path, 0, 8}});
  }
  auto model = Model::from_proto(graph_for_keys(tensors), {}).value();
  auto checkpoint = checkpoint_of(tensors).value();
  fs::remove(dir_.path() / "129.bin");
  (void)dir_.write("129.bin", noise(9, 2));
  EXPECT_THAT(save_model_with_external_data({.folder = out_}, std::move(checkpoint),
                                            std::move(model), quick()),
              FailsWith(ErrorCode::kCorrupt, "129.bin: was changed while it was being read"));
  EXPECT_FALSE(fs::exists(out_ / "model.onnx"));
}

TEST_P(ProvidedSaveBothWays, LinksFileRangesAndNothingElse) {
  fs::create_directories(out_);
  const auto path = dir_.write("out/weights.bin", noise(4096, 1));
  SaveOptions options = quick();
  options.plan.layout = Layout::kLink;
  const Tensors ranges{
      {.info = {"file", DType::kFloat32, {1000}}, .storage = FileBytes{path, 16, 4000}}};
  ASSERT_THAT(save(GetParam(), ranges, options), IsOk());
  EXPECT_EQ(saved()["file"], noise(4096, 1).substr(16, 4000));
  EXPECT_EQ(names_in(out_),
            (std::vector<std::string>{"model.manifest.json", "model.onnx", "weights.bin"}));
  options.write.overwrite = Overwrite::kAllow;
  EXPECT_THAT(
      save(GetParam(), {in_memory("w", DType::kFloat32, {10}, shared_text(noise(40, 1)))}, options),
      FailsWith(ErrorCode::kUnsupported,
                "tensor 'w': its bytes are in memory, not in a file, so no model can refer to them "
                "in place; use a layout that copies"));
  EXPECT_THAT(
      save(GetParam(), {made("w", DType::kFloat32, {10}, noise(40, 1))}, options),
      FailsWith(ErrorCode::kUnsupported, "tensor 'w': its bytes are computed, not in a file"));
}

TEST_F(ProvidedSave, ConvertsMemoryAndMadeTensors) {
  std::string floats;
  for (int i = 0; i < 100; ++i) {
    floats += std::string("\0\0\x80\x3f", 4);
  }
  SaveOptions options = quick();
  options.plan.dtype = DType::kFloat16;
  GraphBuilder builder;
  builder.input("a", 0, {100}).input("b", 0, {100}).node("Use", {"a", "b"}, {"y"});
  builder.output("y", kFloat, {1});
  auto model = Model::from_proto(builder.model(), {});
  auto checkpoint = checkpoint_of({in_memory("a", DType::kFloat32, {100}, shared_text(floats)),
                                   made("b", DType::kFloat32, {100}, floats)});
  const auto report = save_model_with_external_data({.folder = out_}, *std::move(checkpoint),
                                                    *std::move(model), options);
  ASSERT_THAT(report, IsOk());
  std::string halves;
  for (int i = 0; i < 100; ++i) {
    halves += std::string("\0\x3c", 2);
  }
  EXPECT_EQ(saved(), (std::map<std::string, std::string>{{"a", halves}, {"b", halves}}));
}

TEST_F(ProvidedSave, FillsSlotsWithKeysAndTheRestWithTheModelsOwnTensors) {
  const Tensors own{in_memory("w", DType::kFloat32, {100}, shared_text(noise(400, 1))),
                    in_memory("v", DType::kFloat32, {100}, shared_text(noise(400, 2)))};
  auto checkpoint =
      checkpoint_of({in_memory("w", DType::kFloat32, {100}, shared_text(noise(400, 3)))});
  const auto graph = graph_of_provided(own);
  SaveOptions options = quick();
  options.mapping.partial = Partial::kAllow;
  const auto report = attach({.folder = out_},
                             {{{"model.onnx", &graph}}, {}, *std::move(checkpoint), own}, options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(saved(),
            (std::map<std::string, std::string>{{"v", noise(400, 2)}, {"w", noise(400, 3)}}));
}

TEST_F(ProvidedSave, TakesOneTensorForSeveralInitializers) {
  Tensors tensors{made("w", DType::kFloat32, {100}, noise(400, 1))};
  onnx::ModelProto graph = graph_of_provided(tensors);
  *graph.mutable_graph()->add_initializer() = graph.graph().initializer(0);
  graph.mutable_graph()->mutable_initializer(1)->set_name("v");
  graph.mutable_graph()->mutable_node(0)->add_input("v");
  const auto report = save_provided({.folder = out_}, graph, std::move(tensors), quick());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 400U);
  EXPECT_EQ(saved(),
            (std::map<std::string, std::string>{{"v", noise(400, 1)}, {"w", noise(400, 1)}}));
}

TEST_F(ProvidedSave, TakesPlainBytesForTypesThatTorchLacks) {
  constexpr std::int32_t kInt4 = 22;
  GraphBuilder builder;
  builder.external("w", kInt4, {5000},
                   {{"location", "*loose*"}, {"offset", "0"}, {"length", "2500"}});
  builder.node("Use", {"w"}, {"y"}).output("y", kFloat, {1});
  const auto bytes = in_memory("", DType::kUInt8, {2500}, shared_text(noise(2500, 1)));
  ASSERT_THAT(save_provided({.folder = out_}, builder.model(), {bytes}, quick()), IsOk());
  EXPECT_EQ(saved()["w"], noise(2500, 1));
}

TEST_F(ProvidedSave, RefusesEntriesThatTheirTensorsDoNotFit) {
  const auto save_with = [&](const std::string& index, ProvidedTensor tensor) {
    GraphBuilder builder;
    builder.external("w", kFloat, {10}, {{"location", "*loose*"}, {"offset", index}});
    builder.node("Use", {"w"}, {"y"}).output("y", kFloat, {1});
    return save_provided({.folder = out_}, builder.model(), {std::move(tensor)}, quick());
  };
  const auto of = [](DType dtype, std::int64_t size, std::size_t bytes) {
    return in_memory("t", dtype, {size}, shared_text(noise(bytes, 1)));
  };
  EXPECT_THAT(
      save_with("1", of(DType::kFloat32, 10, 40)),
      FailsWith(ErrorCode::kInvalidArgument,
                "initializer 'w': it refers to tensor 1 in memory, but 1 tensors were passed"));
  EXPECT_THAT(save_with("0", of(DType::kFloat32, 9, 36)),
              FailsWith(ErrorCode::kInvalidArgument,
                        "initializer 'w': FLOAT [10] takes 40 bytes, but tensor 0 in memory, "
                        "float32 [9], has a different type or size"));
  EXPECT_THAT(save_with("0", of(DType::kInt32, 10, 40)),
              FailsWith(ErrorCode::kInvalidArgument, "has a different type or size"));
  EXPECT_THAT(save_with("0", of(DType::kFloat32, 10, 39)),
              FailsWith(ErrorCode::kInvalidArgument, "tensor 't': float32 [10] needs 40"));
  EXPECT_THAT(save_with("0", of(DType::kFloat32, 10, 40)), IsOk());
}

// Only a model from memory has provided tensors.
TEST_F(ProvidedSave, TreatsTheLocationInAFileAsAFileName) {
  const Tensors tensors{in_memory("w", DType::kFloat32, {100}, shared_text(noise(400, 1)))};
  const auto path = dir_.write("in/graph.onnx", graph_of_provided(tensors).SerializeAsString());
  EXPECT_THAT(relayout_model({.folder = out_}, path, quick()),
              FailsWith(ErrorCode::kNotFound, "*loose*"));
  dir_.write("in/*loose*", noise(400, 2));
  ASSERT_THAT(relayout_model({.folder = out_}, path, quick()), IsOk());
  EXPECT_EQ(saved()["w"], noise(400, 2));
}

TEST_F(ProvidedSave, RefusesACheckpointWithoutTheModelsTensors) {
  Tensors tensors{in_memory("w", DType::kFloat32, {100}, shared_text(noise(400, 1)))};
  const auto graph = graph_of_provided(tensors);
  const Model model = Model::from_proto(graph, {}).value();
  const Checkpoint alone = checkpoint_of({}).value();
  EXPECT_THAT(stage(alone, model, out_, quick().write),
              FailsWith(ErrorCode::kInvalidArgument, "'w': it refers to tensor 0 in memory"));
  Checkpoint joined = checkpoint_of({}).value();
  CheckpointAccess::append_existing(joined, checkpoint_of(std::move(tensors)).value());
  EXPECT_THAT(save_all(joined, model, out_, quick().write), IsOk());
  EXPECT_TRUE(mapping_keys(joined)->keys.empty());
  EXPECT_EQ(saved()["w"], noise(400, 1));
}

TEST_F(ProvidedSave, IsNeverTakenForTheSameSave) {
  const Model model =
      Model::from_proto(graph_for_keys({in_memory("w", DType::kFloat32, {100}, shared_text(""))}),
                        {})
          .value();
  const auto checkpoint =
      checkpoint_of({in_memory("w", DType::kFloat32, {100}, shared_text(noise(400, 1)))}).value();
  const auto plan = plan_save(model, checkpoint, map_by_name(model, checkpoint), {.folder = out_},
                              {}, quick().write);
  ASSERT_THAT(plan, IsOk());
  EXPECT_NE(name_job(*plan, model, checkpoint).value(), name_job(*plan, model, checkpoint).value());
}

TEST_F(ProvidedSave, WritesTensorsOfAttributesAndSubgraphs) {
  Tensors tensors{in_memory("outer", DType::kFloat32, {500}, shared_text(noise(2000, 1))),
                  in_memory("inner", DType::kFloat32, {500}, shared_text(noise(2000, 2))),
                  in_memory("value", DType::kFloat32, {500}, shared_text(noise(2000, 3)))};
  const auto entry = [](int index) {
    return Entry{{"location", "*loose*"}, {"offset", std::to_string(index)}};
  };
  GraphBuilder builder;
  builder.input("c", onnx::TensorProto::BOOL, {}).external("outer", kFloat, {500}, entry(0));
  builder.node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  builder.external("inner", kFloat, {500}, entry(1)).node("Use", {"inner", "outer"}, {"z"});
  builder.output("z", kFloat, {1}).end_subgraph().output("y", kFloat, {1});
  onnx::AttributeProto* const constant =
      builder.model().mutable_graph()->add_node()->add_attribute();
  auto* const node = builder.model().mutable_graph()->mutable_node(1);
  node->set_op_type("Constant");
  node->add_output("k");
  constant->set_name("value");
  constant->set_type(onnx::AttributeProto::TENSOR);
  *constant->mutable_t() = builder.model().graph().initializer(0);
  constant->mutable_t()->mutable_external_data(1)->set_value("2");
  const auto report = save_provided({.folder = out_}, builder.model(), std::move(tensors), quick());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->verified);
  EXPECT_EQ(saved(), (std::map<std::string, std::string>{{"inner", noise(2000, 2)},
                                                         {"k.value", noise(2000, 3)},
                                                         {"outer", noise(2000, 1)}}));
  const auto later = verify_model(out_ / "model.onnx");
  ASSERT_THAT(later, IsOk());
  EXPECT_TRUE(later->ok() && later->used_manifest);
}

TEST_P(ProvidedSaveBothWays, IsVerifiedLaterByItsManifest) {
  ASSERT_THAT(save(GetParam(), zoo(dir_).tensors), IsOk());
  const auto report = verify_model(out_ / "model.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok() && report->used_manifest);
}

TEST_F(ProvidedSave, RecordsKeysThatALaterCheckpointHas) {
  const auto text = noise(4000, 1);
  ASSERT_THAT(save(Route::kKeys, {in_memory("w", DType::kFloat32, {1000}, shared_text(text))}),
              IsOk());
  const auto later =
      checkpoint_of({in_memory("w", DType::kFloat32, {1000}, shared_text(text))}).value();
  const auto expected = expected_tensors(out_ / "model.onnx", later, {});
  ASSERT_THAT(expected, IsOk());
  const auto report = verify_model_against(out_ / "model.onnx", later, *expected);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->compared, 1U);
}

}  // namespace
}  // namespace onnx_external
