#include "save/link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "save/make_plan.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

PlanOptions link() {
  return {.layout = Layout::kLink};
}

std::vector<TestTensor> plain_tensors(std::uint32_t seed = 1) {
  auto tensors = mixed_tensors(seed);
  std::erase_if(tensors, [](const TestTensor& tensor) { return tensor.name == "turned"; });
  return tensors;
}

// A file of one float tensor "w"; `padding` spaces in the header move its data.
std::string safetensors_file(std::size_t padding) {
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})" + std::string(padding, ' ');
  std::string bytes;
  put_le(bytes, header.size(), 8);
  return bytes + header + noise(16, 1);
}

class Link : public testing::Test {
 protected:
  Status save(const fs::path& checkpoint, const std::vector<TestTensor>& tensors,
              const PlanOptions& layout = link(), Overwrite overwrite = Overwrite::kRefuse) {
    Model model = model_for(tensors);
    return save_all(open_one(checkpoint), model, out_, fast(overwrite), layout);
  }
  Status save_one(const TestTensor& tensor, const TorchZipOptions& zip = {}) {
    return save(dir_.write("out/c.pt", torch_zip({tensor}, zip)), {tensor});
  }
  Names names() const { return names_in(out_); }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

TEST_F(Link, RefersToTheCheckpointsOwnBytes) {
  const auto tensors = plain_tensors();
  const std::string before = torch_zip(tensors);
  ASSERT_THAT(save(dir_.write("out/c.pt", before), tensors), IsOk());
  EXPECT_EQ(names(), (Names{"c.pt", "model.manifest.json", "model.onnx"}));
  EXPECT_TRUE(read_text(out_ / "c.pt") == before);
  const auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  std::map<std::string, std::string> bytes;
  for (const ExternalTensor& tensor : model->external_tensors()) {
    EXPECT_EQ(tensor.location, "c.pt");
    bytes[tensor.name] = before.substr(tensor.offset, tensor.length);
  }
  EXPECT_EQ(bytes.size(), 5U);
  EXPECT_TRUE(bytes["large.weight"] == tensors[0].bytes);
  EXPECT_TRUE(bytes["tied.weight"] == tensors[0].bytes);
  EXPECT_EQ(bytes["part"], tensors[0].bytes.substr(20'000, 40'000));
  for (const auto& initializer : model->proto().graph().initializer()) {
    if (initializer.name() == "steps") {
      EXPECT_EQ(initializer.raw_data().size(), 8U);
    }
  }
}

TEST_F(Link, NamesAFileBelowTheFolder) {
  const auto tensors = plain_tensors();
  ASSERT_THAT(save(dir_.write("out/weights/of it/c.pt", torch_zip(tensors)), tensors), IsOk());
  const auto model = Model::load(out_ / "model.onnx");
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->external_tensors()[0].location, "weights/of it/c.pt");
}

TEST_F(Link, RecordsTheFileAndTheCrcsThatItKnows) {
  const auto tensors = plain_tensors();
  const std::string bytes = torch_zip(tensors);
  ASSERT_THAT(save(dir_.write("out/c.pt", bytes), tensors), IsOk());
  const auto manifest = parse_manifest(read_text(out_ / "model.manifest.json"));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->linked, (std::vector<LinkedFile>{{"c.pt", bytes.size()}}));
  for (const ManifestTensor& tensor : manifest->tensors) {
    if (tensor.slot == "large.weight") {
      EXPECT_EQ(tensor.crc32, crc32_of(tensors[0].bytes));
    } else if (tensor.slot == "part") {
      EXPECT_EQ(tensor.crc32, std::nullopt);  // of the whole record only
    }
  }
}

TEST_F(Link, ReadsNoTensor) {
  const TestTensor tensor{.name = "w", .shape = {16}, .bytes = noise(64, 1)};
  std::string damaged = torch_zip({tensor});
  damaged[damaged.find(tensor.bytes)] ^= 1;
  EXPECT_THAT(save(dir_.write("out/c.pt", damaged), {tensor}), IsOk());
}

TEST_F(Link, LinksAFileThatIsTooLargeToRead) {
  constexpr std::uint64_t kBytes = 4'000'000'000'000;
  std::string header = R"({"w":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,)" +
                       std::to_string(kBytes) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string start;
  put_le(start, header.size(), 8);
  const fs::path file = dir_.write("out/w.safetensors", start + header);
  std::error_code cannot;
  fs::resize_file(file, start.size() + header.size() + kBytes, cannot);
  if (cannot) {
    GTEST_SKIP() << "no sparse files of that size here";
  }
  const std::vector<TestTensor> graph{{.name = "w", .shape = {1'000'000, 1'000'000}}};
  EXPECT_THAT(save(file, graph), IsOk());
}

TEST_F(Link, RejectsBytesThatAreNotAPlainRange) {
  const std::string bytes = noise(64, 1);
  EXPECT_THAT(save_one({.name = "w", .shape = {16}, .bytes = bytes}, {.deflated = true}),
              FailsWith(ErrorCode::kUnsupported, "tensor 'w': its record is compressed"));
  EXPECT_THAT(save_one({.name = "w", .shape = {16}, .bytes = bytes}, {.byte_order = "big"}),
              FailsWith(ErrorCode::kUnsupported, "its bytes are big-endian"));
  for (const std::vector<std::int64_t>& strides : {std::vector<std::int64_t>{1, 4}, {0, 1}}) {
    EXPECT_THAT(save_one({.name = "w", .shape = {4, 4}, .bytes = bytes, .strides = strides}),
                FailsWith(ErrorCode::kUnsupported,
                          "are not in row-major order, so no model can refer to them in place; "
                          "use a layout that copies"));
  }
  EXPECT_EQ(names(), Names{"c.pt"});
}

TEST_F(Link, RefusesAnOffsetThatIsNotAlignedToTheElements) {
  const std::vector<TestTensor> graph{{.name = "w", .shape = {4}}};
  const std::size_t plain = safetensors_file(0).size() - 16;
  const std::size_t aligned = (4 - plain % 4) % 4;
  EXPECT_THAT(save(dir_.write("out/w.safetensors", safetensors_file(aligned + 2)), graph),
              FailsWith(ErrorCode::kUnsupported,
                        "requires FLOAT elements to begin at a multiple of 4 bytes"));
  EXPECT_THAT(save(dir_.write("out/w.safetensors", safetensors_file(aligned)), graph), IsOk());
}

TEST_F(Link, RejectsAFileThatALocationCannotName) {
  const auto tensors = plain_tensors();
  const fs::path file = dir_.write("elsewhere/c.pt", torch_zip(tensors));
  EXPECT_THAT(save(file, tensors),
              FailsWith(ErrorCode::kInvalidArgument, "outside the output folder"));
  fs::create_directory(out_);
  EXPECT_THAT(save(file, tensors), FailsWith(ErrorCode::kInvalidArgument,
                                             "; save to '" + file.parent_path().string() + "'"));
  fs::create_symlink(file, out_ / "c.pt");
  EXPECT_THAT(save(out_ / "c.pt", tensors),
              FailsWith(ErrorCode::kInvalidArgument, "c.pt: is a symbolic link to"));
  fs::create_hard_link(file, out_ / "d.pt");
  EXPECT_THAT(save(out_ / "d.pt", tensors),
              FailsWith(ErrorCode::kInvalidArgument, "has 2 hard links"));
  const fs::path dots = dir_.write("out/c..pt", torch_zip(tensors));
  EXPECT_THAT(save(dots, tensors), FailsWith(ErrorCode::kInvalidArgument, "contains \"..\""));
  EXPECT_FALSE(fs::exists(out_ / "model.onnx"));
}

TEST_F(Link, TakesALinkToAFileInTheFolderForTheFileItself) {
  const auto tensors = plain_tensors();
  (void)dir_.write("out/c.pt", torch_zip(tensors));
  fs::create_symlink(out_ / "c.pt", dir_.path() / "latest.pt");
  ASSERT_THAT(save(dir_.path() / "latest.pt", tensors), IsOk());
  EXPECT_EQ(Model::load(out_ / "model.onnx")->external_tensors()[0].location, "c.pt");
}

TEST_F(Link, RefusesWhatWouldReadOrMakeBytes) {
  const auto tensors = plain_tensors();
  const Checkpoint checkpoint = open_one(dir_.write("out/c.pt", torch_zip(tensors)));
  Model model = model_for(tensors);
  WriteOptions options = fast();
  options.checksum = Checksum::kSha1;
  EXPECT_THAT(save_all(checkpoint, model, out_, options, link()),
              FailsWith(ErrorCode::kInvalidArgument, "checksum"));
  const auto plan = make_plan(model, checkpoint, map_by_name(model, checkpoint), link());
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(merge_equal_bytes(*plan, model, checkpoint, link()),
              FailsWith(ErrorCode::kInvalidArgument, "equal bytes"));
  PlanOptions converting = link();
  converting.dtype = DType::kFloat16;
  Model untyped = model_for({{.name = "steps", .dtype = DType::kInt64, .shape = {}}});
  Mapping keep;
  keep.pairs.push_back({kNoSlot, 0, Rule::kKept});
  EXPECT_THAT(make_plan(untyped, checkpoint, keep, converting),
              FailsWith(ErrorCode::kUnsupported, "have to be converted"));
}

// Also under names that data files of ours have.
TEST_F(Link, NeverRemovesTheCheckpoint) {
  const auto tensors = plain_tensors();
  for (const char* name : {"c.pt", "model.data", "model.3.data", "initializers/large.weight",
                           "model.5-00001-of-00001.data"}) {
    fs::remove_all(out_);
    const std::string bytes = torch_zip(tensors);
    const fs::path file = dir_.write(std::string("out/") + name, bytes);
    for (int round = 0; round < 2; ++round) {
      for (const Layout layout : {Layout::kLink, Layout::kLink, Layout::kPerTensor, Layout::kLink,
                                  Layout::kSingle, Layout::kShards}) {
        ASSERT_THAT(save(file, tensors, {.layout = layout}, Overwrite::kAllow), IsOk()) << name;
        ASSERT_TRUE(read_text(file) == bytes) << name;
        ASSERT_TRUE(Model::load(out_ / "model.onnx").has_value());
      }
    }
    ASSERT_THAT(save(file, tensors, link(), Overwrite::kAllow), IsOk());
    EXPECT_EQ(names().size(), fs::path(name).has_parent_path() ? 4U : 3U) << name;
  }
}

TEST_F(Link, LeavesOneManifestWhenTheSameModelIsSavedAgain) {
  const auto tensors = plain_tensors();
  const fs::path file = dir_.write("out/c.pt", torch_zip(tensors));
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(save(file, tensors, link(), Overwrite::kAllow), IsOk());
  }
  EXPECT_EQ(names(), (Names{"c.pt", "model.2.manifest.json", "model.onnx"}));
}

// The data of the model that is replaced serves the new one, and stays.
TEST_F(Link, LinksDataThatCameWithTheGraph) {
  const auto tensors = plain_tensors();
  const fs::path file = dir_.write("c.pt", torch_zip(tensors));
  const std::string newer =
      torch_zip({{.name = "small.bias", .shape = {16}, .bytes = noise(64, 9)}});
  for (const Layout layout : {Layout::kSingle, Layout::kPerTensor}) {
    fs::remove_all(out_);
    const fs::path other = dir_.write("out/newer.pt", newer);
    ASSERT_THAT(save(file, tensors, {.layout = layout}), IsOk());
    const auto before = tree_of(out_);
    auto model = Model::load(out_ / "model.onnx");
    ASSERT_THAT(model, IsOk());
    ASSERT_THAT(save_all(open_one(other), *model, out_, fast(Overwrite::kAllow), link()), IsOk());
    const auto after = tree_of(out_);
    for (const auto& [name, content] : before) {
      const bool is_of_the_old_model =
          name.find("json") != std::string::npos || name.find("small.bias") != std::string::npos;
      EXPECT_EQ(after.contains(name), !is_of_the_old_model) << name;
    }
    const auto linked = Model::load(out_ / "model.onnx");
    ASSERT_THAT(linked, IsOk());
    EXPECT_EQ(linked->external_tensors().size(), 5U);
    for (const ExternalTensor& tensor : linked->external_tensors()) {
      EXPECT_EQ(tensor.location == "newer.pt", tensor.name == "small.bias");
      EXPECT_TRUE(after.contains(tensor.location));
    }
  }
}

TEST_F(Link, RefusesDataOfTheGraphThatLiesElsewhere) {
  const auto tensors = plain_tensors();
  const fs::path out = out_;
  out_ = dir_.path() / "first";
  ASSERT_THAT(save(dir_.write("c.pt", torch_zip(tensors)), tensors, {}), IsOk());
  auto model = Model::load(out_ / "model.onnx");
  out_ = out;
  const std::vector<TestTensor> none{{.name = "unused", .shape = {1}, .bytes = noise(4, 9)}};
  const Checkpoint checkpoint = open_one(dir_.write("out/none.pt", torch_zip(none)));
  EXPECT_THAT(save_all(checkpoint, *model, out_, fast(), link()),
              FailsWith(ErrorCode::kInvalidArgument, "outside the output folder"));
}

}  // namespace
}  // namespace onnx_external
