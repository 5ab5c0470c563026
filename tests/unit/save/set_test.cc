// Several models that share their data files.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "save/record.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Two graphs: `first` uses a and shared, `second` shared and b. Each has its own val_3.
class Set : public testing::Test {
 protected:
  static TestTensor tensor(const std::string& name, std::uint32_t seed) {
    return {.name = name, .shape = {30, 40}, .bytes = noise(4800, seed)};
  }
  static std::vector<TestTensor> tensors(std::uint32_t seed) {
    return {tensor("a", seed), tensor("shared", seed + 1), tensor("b", seed + 2)};
  }
  fs::path checkpoint(std::uint32_t seed = 1) {
    return dir_.write("c" + std::to_string(seed) + ".pt", torch_zip(tensors(seed)));
  }
  static GraphToSave graph(const std::string& name, const Names& uses) {
    std::vector<TestTensor> used;
    for (const std::string& key : uses) {
      used.push_back(tensor(key, 1));
    }
    return {name, model_for(used)};
  }
  static std::vector<GraphToSave> graphs() {
    return {graph("first.onnx", {"a", "shared"}), graph("second.onnx", {"shared", "b"})};
  }
  static SaveOptions options(Layout layout = Layout::kPerTensor,
                             Overwrite overwrite = Overwrite::kRefuse) {
    SaveOptions options;
    options.write.sync = Sync::kNone;
    options.write.overwrite = overwrite;
    options.plan.layout = layout;
    return options;
  }
  Result<SaveReport> save(const std::vector<GraphToSave>& graphs, const SaveOptions& options,
                          std::uint32_t seed = 1) {
    const std::vector<fs::path> paths{checkpoint(seed)};
    return save_graphs_with_external_data({.folder = out_}, paths, graphs, options);
  }
  // The codes of what verification finds in both models.
  std::set<std::string> findings() const {
    const std::vector<ModelToVerify> models{{out_ / "first.onnx"}, {out_ / "second.onnx"}};
    std::set<std::string> codes;
    const auto reports = verify_models(models);
    EXPECT_THAT(reports, IsOk());
    for (std::size_t i = 0; reports && i < reports->size(); ++i) {
      EXPECT_TRUE((*reports)[i].used_manifest);
      for (const Finding& finding : (*reports)[i].findings) {
        codes.insert(std::string(finding_code_name(finding.code)));
      }
    }
    return codes;
  }
  Names top() const {
    Names names;
    for (const std::string& name : names_in(out_)) {
      if (name.find('/') == std::string::npos) {
        names.push_back(name);
      }
    }
    return names;
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

TEST_F(Set, StoresEachByteOnceInEveryLayout) {
  const std::vector<std::pair<Layout, Names>> layouts{
      {Layout::kPerTensor,
       {"first.manifest.json", "first.onnx", "initializers", "second.manifest.json",
        "second.onnx"}},
      {Layout::kSingle,
       {"first.manifest.json", "first.onnx", "initializers.data", "second.manifest.json",
        "second.onnx"}},
      {Layout::kShards,
       {"first.manifest.json", "first.onnx", "initializers-00001-of-00001.data",
        "second.manifest.json", "second.onnx"}}};
  for (const auto& [layout, names] : layouts) {
    out_ = dir_.path() / std::to_string(static_cast<int>(layout));
    const auto report = save(graphs(), options(layout));
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(top(), names);
    EXPECT_LT(report->bytes, 4 * 4800U);  // three tensors, not four, and perhaps padding
    EXPECT_GE(report->bytes, 3 * 4800U);
    EXPECT_TRUE(report->verified);
    ASSERT_EQ(report->models.size(), 2U);
    EXPECT_EQ(report->models[0].bytes, 2 * 4800U);
    EXPECT_EQ(report->models[0].tensors[1].offset, report->models[1].tensors[0].offset);
    EXPECT_EQ(findings(), std::set<std::string>());
  }
}

TEST_F(Set, WritesTheSameForAnyNumberOfThreads) {
  for (const int threads : {1, 4}) {
    out_ = dir_.path() / std::to_string(threads);
    SaveOptions several = options(Layout::kShards);
    if (several.plan.layout == Layout::kShards) {
      several.plan.max_shard_bytes = 5000;
    }
    several.write.threads = threads;
    ASSERT_THAT(save(graphs(), several), IsOk());
  }
  EXPECT_EQ(tree_of(dir_.path() / "1"), tree_of(dir_.path() / "4"));
}

TEST_F(Set, RefusesAKeyThatNoGraphUsesAndTakesOneThatAnyUses) {
  EXPECT_THAT(save({graph("first.onnx", {"a"}), graph("second.onnx", {"b"})}, options()),
              FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused, {"shared"}));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_THAT(save(graphs(), options()), IsOk());
}

TEST_F(Set, NamesTheMissingWeightsOfEachGraph) {
  const auto report = save({graph("first.onnx", {"a", "shared", "b", "lost.weight"}),
                            graph("second.onnx", {"a", "gone.weight"})},
                           options());
  ASSERT_THAT(report, FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing,
                                   {"lost.weight", "gone.weight"}));
  ASSERT_TRUE(report.error().details);
  EXPECT_EQ(report.error().details->lists.front().owner, "first.onnx");
  EXPECT_EQ(report.error().details->lists.back().owner, "second.onnx");
}

TEST_F(Set, TakesOptionsForSlotsOfOneGraphOnly) {
  SaveOptions some = options();
  some.mapping.map = {{"b", "a"}};
  some.mapping.unmatched = Unmatched::kSkip;
  const auto report = save(graphs(), some);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->models[1].tensors[1].key, "a");
  out_ = dir_.path() / "refused";
  some.mapping.map = {{"nowhere", "a"}};
  EXPECT_THAT(save(graphs(), some),
              FailsWith(ErrorCode::kNotFound, "no graph has a slot 'nowhere'"));
  some.mapping.map = {{"b", "a", {}, "third.onnx"}};
  EXPECT_THAT(save(graphs(), some),
              FailsWith(ErrorCode::kNotFound, "'third.onnx', which is not one of the models"));
}

TEST_F(Set, RefusesNamesThatAreEqualOrNotThoseOfModels) {
  EXPECT_THAT(save({graph("x.onnx", {"a"}), graph("x.onnx", {"b"})}, options()),
              FailsWith(ErrorCode::kInvalidArgument, "two models are named 'x.onnx'"));
  EXPECT_THAT(save({graph("x.onnx", {"a"}), graph("X.onnx", {"b"})}, options()),
              FailsWith(ErrorCode::kInvalidArgument, "are the same on some file systems"));
  EXPECT_THAT(save({graph("x.pb", {"a"}), graph("y.onnx", {"b"})}, options()),
              FailsWith(ErrorCode::kInvalidArgument, "must end with .onnx"));
  EXPECT_THAT(save({}, options()), FailsWith(ErrorCode::kInvalidArgument, "no graph"));
}

TEST_F(Set, RefusesWhatIsForOneModel) {
  EXPECT_THAT(save(graphs(), options(Layout::kInline)),
              FailsWith(ErrorCode::kInvalidArgument, "a layout other than inline"));
  SaveOptions some = options();
  some.mapping.unmatched = Unmatched::kKeep;
  EXPECT_THAT(save(graphs(), some), FailsWith(ErrorCode::kInvalidArgument, "initializers"));
  some = options();
  some.test_data = {"inputs.pt"};
  EXPECT_THAT(save(graphs(), some), FailsWith(ErrorCode::kInvalidArgument, "recorded inputs"));
  some = options();
  some.learn_from = {"old.pt"};
  EXPECT_THAT(save(graphs(), some), FailsWith(ErrorCode::kInvalidArgument, "a single graph"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Set, ReplacesASetAndLeavesNothingOfIt) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle}) {
    out_ = dir_.path() / std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(graphs(), options(layout)), IsOk());
    EXPECT_THAT(save(graphs(), options(layout)),
                FailsWith(ErrorCode::kAlreadyExists, "first.onnx: exists"));
    ASSERT_THAT(save(graphs(), options(layout, Overwrite::kAllow), 5), IsOk());
    EXPECT_EQ(top(), (Names{"first.1.manifest.json", "first.onnx",
                            layout == Layout::kSingle ? "initializers.1.data" : "initializers.1",
                            "second.1.manifest.json", "second.onnx"}));
    EXPECT_EQ(findings(), std::set<std::string>());
  }
}

TEST_F(Set, KeepsWhatTheOthersUseWhenOneModelIsReplacedAlone) {
  ASSERT_THAT(save(graphs(), options()), IsOk());
  const std::vector<fs::path> paths{checkpoint(5)};
  const auto replace = [&](const std::string& name, const Names& uses) {
    SaveOptions alone = options(Layout::kPerTensor, Overwrite::kAllow);
    alone.mapping.unmatched = Unmatched::kSkip;
    return save_model_with_external_data(out_, name, "initializers", paths,
                                         std::get<Model>(graph(name, uses).graph).proto(), alone);
  };
  ASSERT_THAT(replace("first.onnx", {"a", "shared"}), IsOk());
  EXPECT_EQ(findings(), std::set<std::string>());  // no mixed set: the first was replaced alone
  EXPECT_FALSE(fs::exists(out_ / "initializers" / "a"));
  EXPECT_TRUE(fs::exists(out_ / "initializers" / "shared"));
  ASSERT_THAT(replace("second.onnx", {"shared", "b"}), IsOk());
  EXPECT_EQ(top(), (Names{"first.onnx", "initializers.1", "initializers.2", "second.onnx"}));
}

TEST_F(Set, FindsEqualBytesOfUnrelatedModels) {
  ASSERT_THAT(save({graph("first.onnx", {"a", "shared", "b"})}, options()), IsOk());
  fs::copy(out_, dir_.path() / "copy", fs::copy_options::recursive);
  const std::vector<GraphToSave> both{{"one.onnx", out_ / "first.onnx"},
                                      {"two.onnx", dir_.path() / "copy" / "first.onnx"}};
  SaveOptions some = options();
  some.plan.dedup = Dedup::kContent;
  const fs::path target = dir_.path() / "joined";
  const auto report = relayout_models({.folder = target}, both, some);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 3 * 4800U);
  EXPECT_TRUE(fs::exists(target / "initializers" / "one.a"));
}

// --- one model of a set --------------------------------------------------------------------------

// What is wrong with a model, compared with the whole checkpoint.
class MemberOfSet : public Set {
 protected:
  void SetUp() override { ASSERT_THAT(save(graphs(), options()), IsOk()); }
  Result<VerifyReport> compare(const std::string& name) {
    const std::vector<fs::path> paths{checkpoint()};
    TRY_ASSIGN(const auto weights, open_checkpoint(paths));
    TRY_ASSIGN(const auto expected, expected_tensors(out_ / name, weights, {}));
    return verify_model_against(out_ / name, weights, expected);
  }
};

TEST_F(MemberOfSet, IsComparedWithTheCheckpointOfAll) {
  const auto report = compare("first.onnx");  // "b" is used by the second alone
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->compared, 2U);
}

TEST_F(MemberOfSet, IsAlsoComparedWithoutTheOthers) {
  fs::remove(out_ / "second.onnx");
  const auto report = compare("first.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->compared, 2U);
}

TEST_F(MemberOfSet, IsFoundToDifferFromTheCheckpoint) {
  std::string bytes = read_text(out_ / "initializers" / "shared");
  bytes[5] = static_cast<char>(bytes[5] ^ 4);
  dir_.write("out/initializers/shared", bytes);
  for (const char* name : {"first.onnx", "second.onnx"}) {
    const auto report = compare(name);
    ASSERT_THAT(report, IsOk());
    EXPECT_FALSE(report->ok()) << name;
  }
}

TEST_F(MemberOfSet, IsFoundWithTheOthersInTheirFolder) {
  auto models = find_models(out_);
  ASSERT_THAT(models, IsOk());
  EXPECT_EQ(*models, (std::vector<fs::path>{out_ / "first.onnx", out_ / "second.onnx"}));
  const std::vector<fs::path> paths{checkpoint()};
  SaveOptions alone = options(Layout::kPerTensor, Overwrite::kAllow);
  alone.mapping.unmatched = Unmatched::kSkip;
  ASSERT_THAT(save_model_with_external_data(
                  out_, "first.onnx", "initializers", paths,
                  std::get<Model>(graph("first.onnx", {"a", "shared"}).graph).proto(), alone),
              IsOk());
  models = find_models(out_);  // the second still says it
  ASSERT_THAT(models, IsOk());
  EXPECT_EQ(models->size(), 2U);
  fs::copy_file(out_ / "first.onnx", out_ / "third.onnx");
  EXPECT_THAT(find_models(out_), FailsWith(ErrorCode::kAmbiguous, "third.onnx"));
}

// --- models and weights in memory ----------------------------------------------------------------

onnx::ModelProto graph_of_list(const std::vector<std::pair<std::string, std::string>>& names) {
  GraphBuilder builder;
  std::vector<std::string> inputs;
  for (const auto& [name, number] : names) {
    builder.external(name, kFloat, {30, 40},
                     {{"location", std::string(kInMemoryLocation)}, {"offset", number}});
    inputs.push_back(name);
  }
  builder.node("Use", inputs, {"y"}).output("y", kFloat, {1});
  return builder.model();
}

class SetInMemory : public Set {
 protected:
  // Two graphs that share the second tensor of one list.
  static Result<SaveReport> save_two(const fs::path& folder, std::vector<ProvidedTensor> tensors,
                                     const SaveOptions& options) {
    const auto one = graph_of_list({{"a", "0"}, {"w", "1"}});
    const auto two = graph_of_list({{"v", "1"}, {"b", "2"}});
    return relayout({.folder = folder},
                    {{{"one.onnx", &one}, {"two.onnx", &two}}, {}, {}, std::move(tensors)},
                    options);
  }
};

TEST_F(SetInMemory, StoresATensorOfTwoGraphsOnce) {
  std::vector<ProvidedTensor> tensors;
  for (std::uint32_t i = 0; i < 3; ++i) {
    tensors.push_back(in_memory("", DType::kFloat32, {30, 40}, shared_text(noise(4800, i + 1))));
  }
  SaveOptions some = options(Layout::kSingle);
  some.plan.dedup = Dedup::kOff;
  const auto twice = save_two(dir_.path() / "off", tensors, some);
  ASSERT_THAT(twice, IsOk());
  EXPECT_GE(twice->bytes, 4 * 4800U);
  const auto report = save_two(out_, std::move(tensors), options());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 3 * 4800U);
  EXPECT_TRUE(report->verified);
  EXPECT_EQ(read_text(out_ / "initializers" / "one.w"), noise(4800, 2));
  EXPECT_EQ(report->models[1].tensors[0].file, "initializers/one.w");
}

TEST_F(SetInMemory, MakesATensorOfTwoGraphsOnce) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  std::vector<ProvidedTensor> tensors;
  for (std::uint32_t i = 0; i < 3; ++i) {
    tensors.push_back(made("", DType::kFloat32, {30, 40}, noise(4800, i + 1), calls));
  }
  const auto report = save_two(out_, std::move(tensors), options());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 3 * 4800U);
  EXPECT_EQ(*calls, 3);
}

TEST_F(SetInMemory, TakesACheckpointThatIsReadyAndTensorsBesideIt) {
  const std::vector<fs::path> paths{checkpoint()};
  auto weights = open_checkpoint(paths);
  ASSERT_THAT(weights, IsOk());
  std::vector<ProvidedTensor> beside;
  beside.push_back(in_memory("b", DType::kFloat32, {30, 40}, shared_text(noise(4800, 77))));
  const auto extra = checkpoint_of(std::move(beside));
  ASSERT_THAT(extra, IsOk());
  const std::vector<GraphToSave> both = graphs();
  std::vector<Model> models;
  for (const GraphToSave& graph : both) {
    models.push_back(std::get<Model>(graph.graph));
  }
  SaveOptions some = options();
  auto joined = with_extra(models, &*weights, *extra, some);
  ASSERT_THAT(joined, IsOk());
  const auto report =
      save_graphs_with_external_data({.folder = out_}, *std::move(joined), both, some);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(read_text(out_ / "initializers" / "b"), noise(4800, 77));
  EXPECT_EQ(report->bytes, 3 * 4800U);
}

// --- sets that were cut off ----------------------------------------------------------------------

// Puts a model of the new set and its data in place, as a save that was killed then leaves it.
class CutOffSet : public Set {
 protected:
  void SetUp() override {
    ASSERT_THAT(save(graphs(), options()), IsOk());
    old_ = tree_of(out_);
    ASSERT_THAT(save(graphs(), options(Layout::kPerTensor, Overwrite::kAllow), 5), IsOk());
    new_ = tree_of(out_);
    for (const auto& [name, text] : old_) {  // the old data, as it is before the end
      if (text != "(no file)") {
        dir_.write("out/" + name, text);
      }
    }
    fs::permissions(out_, fs::perms::owner_all);
    fs::create_directory(staging());
    fs::permissions(staging(), fs::perms::owner_all);
    const Directory out = Directory::open(out_).value();
    Publication publication{Overwrite::kAllow, {"initializers.1"}, {}, {}};
    const Directory data = out.open_folder("initializers.1").value();
    for (const std::string& name : names_in(out_ / "initializers.1")) {
      publication.files.push_back(list_file(data, name, "initializers.1/" + name).value());
    }
    for (const std::string& name : Names{"first.onnx", "second.onnx"}) {
      const std::string manifest = name.substr(0, name.find('.')) + ".1.manifest.json";
      dir_.write(fs::relative(staging() / name, dir_.path()).string(), new_.at(name));
      const ModelIdentity old = identity_of(old_.at(name));
      publication.entries.push_back(manifest);
      publication.models.push_back({name, identity_of(new_.at(name)),
                                    list_file(out, manifest, manifest).value(), old,
                                    list_data_of(out, name, old, {}).value()});
    }
    auto record = RecordWriter::start(Directory::open(staging()).value(), "", {});
    ASSERT_THAT(record, IsOk());
    ASSERT_THAT(record->publish(publication, Sync::kNone), IsOk());
  }
  static ModelIdentity identity_of(const std::string& text) {
    return {text.size(), crc32_of(text)};
  }
  fs::path staging() const { return out_ / ".save-external.0123456789abcdef.tmp"; }
  void commit(const std::string& name) { fs::rename(staging() / name, out_ / name); }

  std::map<std::string, std::string> old_;
  std::map<std::string, std::string> new_;
};

TEST_F(CutOffSet, IsReportedAsMixed) {
  EXPECT_EQ(findings(), std::set<std::string>());  // nothing of it is in place
  commit("first.onnx");
  EXPECT_EQ(findings(), std::set<std::string>{"mixed-set"});
  fs::remove_all(staging());  // the manifests tell it, too
  EXPECT_EQ(findings(), std::set<std::string>{"mixed-set"});
}

TEST_F(CutOffSet, IsCompletedByTheNextSaveOfAnyModel) {
  commit("first.onnx");
  const std::vector<fs::path> paths{dir_.write("x.pt", torch_zip({tensor("x", 9)}))};
  ASSERT_THAT(
      save_model_with_external_data(out_, "other.onnx", "initializers", paths,
                                    std::get<Model>(graph("", {"x"}).graph).proto(), options()),
      IsOk());
  EXPECT_EQ(findings(), std::set<std::string>());
  EXPECT_EQ(read_text(out_ / "second.onnx"), new_.at("second.onnx"));
  EXPECT_FALSE(fs::exists(staging()));
  EXPECT_FALSE(fs::exists(out_ / "first.manifest.json"));  // the old data is gone
  EXPECT_FALSE(fs::exists(out_ / "initializers" / "a"));
}

TEST_F(CutOffSet, IsCompletedEvenByASaveThatIsRefused) {
  commit("second.onnx");
  EXPECT_THAT(save(graphs(), options()), FailsWith(ErrorCode::kAlreadyExists, "exists"));
  EXPECT_EQ(tree_of(out_), new_);
}

// An entry is removed as it was listed, so a file that a stranger put in its place stays.
TEST_F(CutOffSet, LeavesFilesThatWereChangedMeanwhile) {
  commit("first.onnx");
  fs::last_write_time(out_ / "initializers" / "a", fs::file_time_type::clock::now());
  dir_.write("out/initializers/b", "another size");
  EXPECT_THAT(save(graphs(), options()), FailsWith(ErrorCode::kAlreadyExists, "exists"));
  EXPECT_FALSE(fs::exists(staging()));
  EXPECT_TRUE(fs::exists(out_ / "initializers" / "a"));
  EXPECT_FALSE(fs::exists(out_ / "initializers" / "shared"));
  EXPECT_EQ(read_text(out_ / "initializers" / "b"), "another size");
}

// Somebody may have put the old model back.
TEST_F(CutOffSet, LeavesTheDataOfAModelThatIsInPlace) {
  commit("first.onnx");
  commit("second.onnx");
  dir_.write("out/first.onnx", old_.at("first.onnx"));
  dir_.write("out/second.onnx", old_.at("second.onnx"));
  EXPECT_THAT(save(graphs(), options()), FailsWith(ErrorCode::kAlreadyExists, "exists"));
  EXPECT_EQ(tree_of(out_), old_);
}

TEST_F(CutOffSet, IsUndoneWhereNothingOfItIsInPlace) {
  const std::vector<fs::path> paths{dir_.write("x.pt", torch_zip({tensor("x", 9)}))};
  ASSERT_THAT(
      save_model_with_external_data(out_, "other.onnx", "more", paths,
                                    std::get<Model>(graph("", {"x"}).graph).proto(), options()),
      IsOk());
  EXPECT_EQ(findings(), std::set<std::string>());
  EXPECT_EQ(read_text(out_ / "first.onnx"), old_.at("first.onnx"));
  EXPECT_FALSE(fs::exists(staging()));
  EXPECT_FALSE(fs::exists(out_ / "initializers.1"));
}

TEST_F(CutOffSet, IsNotPublishedFromAFolderThatOthersMayWriteInto) {
  commit("first.onnx");
  fs::permissions(staging(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(save(graphs(), options()), FailsWith(ErrorCode::kAlreadyExists, "exists"));
  EXPECT_EQ(read_text(out_ / "second.onnx"), old_.at("second.onnx"));
}

}  // namespace
}  // namespace onnx_external
