#include "checkpoint/dcp/dcp.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>

#include "checkpoint/dcp/dcp_metadata.h"
#include "support/dcp_builder.h"
#include "support/legacy_builder.h"
#include "support/open_bytes.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

Result<Checkpoint> open(const std::filesystem::path& path, const OpenOptions& options = {}) {
  return open_checkpoint({{path}}, options);
}

// [2, 3] floats 1 to 6, cut into columns [0, 2) and [2, 3).
DcpTensorSpec cut_tensor(const std::string& name = "w") {
  return {.name = name,
          .shape = {2, 3},
          .chunks = {{.offsets = {0, 0},
                      .sizes = {2, 2},
                      .bytes = tensor_zip({.shape = {2, 2}, .bytes = f32({1, 2, 4, 5})})},
                     {.offsets = {0, 2},
                      .sizes = {2, 1},
                      .bytes = tensor_zip({.shape = {2, 1}, .bytes = f32({3, 6})}),
                      .file = "__1_0.distcp"}}};
}

DcpTensorSpec whole_tensor(const std::string& name) {
  return {.name = name,
          .shape = {2},
          .chunks = {{.offsets = {0},
                      .sizes = {2},
                      .bytes = tensor_zip({.shape = {2}, .bytes = f32({7, 8})})}}};
}

// The error of a folder with this one tensor.
Result<Checkpoint> open_one(const DcpTensorSpec& tensor, const OpenOptions& options = {}) {
  const TempDir dir;
  return open(write_dcp(dir, {.tensors = {tensor}}), options);
}

TEST(Dcp, GivesATensorOfOneChunkAsARangeOfItsFile) {
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {whole_tensor("a"), whole_tensor("b")}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "dcp");
  const auto range = checkpoint->plain_range(1);
  ASSERT_TRUE(range);
  EXPECT_EQ(read_text(dir.path() / "__0_0.distcp").substr(range->offset, range->length),
            f32({7, 8}));
  EXPECT_GT(range->offset, whole_tensor("a").chunks[0].bytes.size());
  EXPECT_EQ(checkpoint->recorded_crc(1), crc32_of(f32({7, 8})));
}

TEST(Dcp, PutsChunksTogether) {
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {cut_tensor()}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->plain_range(0), std::nullopt);
  EXPECT_EQ(checkpoint->recorded_crc(0), std::nullopt);
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4, 5, 6}));
}

TEST(Dcp, ReadsTheFolderThroughItsMetadataToo) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {whole_tensor("a")}});
  EXPECT_THAT(open(folder / ".metadata"), IsOk());
}

TEST(Dcp, SwapsChunksOfBigEndianFiles) {
  DcpTensorSpec tensor = cut_tensor();
  std::string swapped = f32({3, 6});
  for (std::size_t i = 0; i < swapped.size(); i += 4) {
    std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(i),
                 swapped.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  }
  tensor.chunks[1].bytes = tensor_zip({.shape = {2, 1}, .bytes = swapped}, "big");
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {tensor}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4, 5, 6}));
}

TEST(Dcp, ReadsStridedChunks) {
  DcpTensorSpec tensor = cut_tensor();
  const std::vector<std::int64_t> strides = {1, 2};
  tensor.chunks[0].bytes =
      tensor_zip({.shape = {2, 2}, .bytes = f32({1, 4, 2, 5}), .strides = strides});
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {tensor}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4, 5, 6}));
}

TEST(Dcp, ChecksTheRecordedCrcOfEveryChunk) {
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {cut_tensor()}}));
  ASSERT_THAT(checkpoint, IsOk());
  const std::uint32_t storage = checkpoint->tensors()[0].storage;
  EXPECT_THAT(checkpoint->check_storage(storage), IsOk());
  std::string part = read_text(dir.path() / "__1_0.distcp");
  part[part.find(f32({3, 6}))] ^= 1;
  dir.write("__1_0.distcp", part);
  EXPECT_THAT(checkpoint->check_storage(storage), FailsWith(ErrorCode::kCorrupt, "__1_0.distcp"));
}

TEST(Dcp, NoticesThatAPartWasChanged) {
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {cut_tensor()}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->check_unchanged(), IsOk());
  dir.write("__1_0.distcp", "short");
  EXPECT_THAT(checkpoint->check_unchanged(), FailsWith(ErrorCode::kCorrupt, "was changed"));
}

TEST(Dcp, ReadsScalarsAndEmptyTensors) {
  const TempDir dir;
  const auto checkpoint = open(write_dcp(
      dir,
      {.tensors = {{.name = "empty", .shape = {0, 3}},
                   {.name = "scalar", .chunks = {{.bytes = tensor_zip({.bytes = f32({5})})}}}}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->nbytes(0), 0U);
  EXPECT_EQ(checkpoint->plain_range(0)->length, 0U);
  EXPECT_EQ(read_all(*checkpoint, 1), f32({5}));
}

TEST(Dcp, LeavesOutTheEmptyChunksOfIdleRanks) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks.push_back({.offsets = {2}, .sizes = {0}, .places = 0});
  tensor.chunks.push_back({.offsets = {2}, .sizes = {0}, .places = 0});
  EXPECT_THAT(open_one(tensor), IsOk());
}

TEST(Dcp, NamesTensorsByPlannerData) {
  const TempDir dir;
  const auto folder = write_dcp(
      dir, {.tensors = {whole_tensor("model.fc.w"), cut_tensor("lr")},
            .bytes_items = {"epoch"},
            .paths = {
                {"model.fc.w", {"model", "fc.w"}}, {"lr", {"optim", "lr"}}, {"epoch", {"epoch"}}}});
  EXPECT_THAT(open(folder), FailsWith(ErrorCode::kAmbiguous, "'model' (1 tensor), 'optim' (1 "));
  EXPECT_THAT(names(*open(folder, {.key = "model"})), ElementsAre("fc.w"));
  EXPECT_THAT(names(*open(folder, {.key = "."})), ElementsAre("model.fc.w", "optim.lr"));
  EXPECT_THAT(open(folder, {.key = "x"}), FailsWith(ErrorCode::kNotFound, "no dict at the key"));
  const auto all = open(folder, {.selection = Selection::kEverything});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(names(*all), ElementsAre("model.fc.w", "optim.lr"));
  ASSERT_EQ(all->opaque_objects().size(), 1U);
  EXPECT_EQ(all->opaque_objects()[0].path, "epoch");
  EXPECT_EQ(all->opaque_objects()[0].type, "bytes item");
}

TEST(Dcp, ReadsOnlyTheSlicesOfTheChosenTensors) {
  const TempDir dir;
  DcpTensorSpec broken = whole_tensor("optim.x");
  broken.chunks[0].bytes = "no slice at all";
  const auto folder =
      write_dcp(dir, {.tensors = {whole_tensor("model.w"), broken},
                      .paths = {{"model.w", {"model", "w"}}, {"optim.x", {"optim", "x"}}}});
  EXPECT_THAT(open(folder, {.key = "model"}), IsOk());
}

TEST(Dcp, RefusesAPathThatIsATensorAndAFolder) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {whole_tensor("a"), whole_tensor("b")},
                                      .paths = {{"a", {"x"}}, {"b", {"x", "y"}}}});
  EXPECT_THAT(open(folder, {.key = "."}), FailsWith(ErrorCode::kCorrupt, "the name 'x'"));
}

TEST(Dcp, RefusesAPathOfTooManyParts) {
  const TempDir dir;
  const std::vector<std::string> path(101, "x");
  EXPECT_THAT(open(write_dcp(dir, {.tensors = {whole_tensor("a")}, .paths = {{"a", path}}})),
              FailsWith(ErrorCode::kUnsupported, "more than 100 parts"));
}

TEST(Dcp, RefusesTwoItemsOfOneName) {
  const TempDir dir;
  EXPECT_THAT(open(write_dcp(dir, {.tensors = {whole_tensor("a")}, .bytes_items = {"a"}})),
              FailsWith(ErrorCode::kCorrupt, "two items have the name 'a'"));
}

TEST(Dcp, RefusesChunksThatLeaveAHole) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks.pop_back();
  EXPECT_THAT(
      open_one(tensor),
      FailsWith(ErrorCode::kCorrupt, "tensor 'w': none of its chunks contains the element [0, 2]"));
}

TEST(Dcp, RefusesChunksThatOverlap) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.shape = {2, 2};
  tensor.chunks[1].offsets = {0, 1};
  EXPECT_THAT(
      open_one(tensor),
      FailsWith(ErrorCode::kCorrupt, "more than one of its chunks contains the element [0, 1]"));
}

TEST(Dcp, RefusesAChunkOutsideTheShape) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].offsets = {1, 2};
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "extends beyond its shape [2, 3]"));
}

TEST(Dcp, RefusesAChunkOfAnotherRank) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].offsets = {2};
  tensor.chunks[1].sizes = {2};
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "a chunk of 1 dimensions at [2]"));
}

TEST(Dcp, RefusesANegativeChunkOffset) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].offsets = {-1, 2};
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "not a non-negative int"));
}

TEST(Dcp, RefusesASliceOfAnotherShape) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].bytes = tensor_zip({.shape = {1, 2}, .bytes = f32({3, 6})});
  EXPECT_THAT(open_one(tensor),
              FailsWith(ErrorCode::kCorrupt, "its slice contains float32 [1, 2]"));
}

TEST(Dcp, RefusesASliceOfAnotherType) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].bytes =
      tensor_zip({.dtype = DType::kInt32, .shape = {2, 1}, .bytes = f32({3, 6})});
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "its slice contains int32 [2, 1]"));
}

TEST(Dcp, RefusesAShapeThatOverflows) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  tensor.chunks.clear();
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "tensor 'a'"));
}

TEST(Dcp, RefusesAChunkWithoutAPlace) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].places = 0;
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt,
                                          "chunk at [0, 2]: storage_data has no location for it"));
}

TEST(Dcp, RefusesAChunkWithTwoPlaces) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].places = 2;
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "two locations for its chunk"));
}

TEST(Dcp, RefusesASlicePastTheEndOfItsFile) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].length = 1 << 20;
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "1048576 bytes are declared here"));
}

TEST(Dcp, RefusesANegativeSlice) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].offset = -1;
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kCorrupt, "offset or length"));
}

TEST(Dcp, RefusesSlicesThatShareBytes) {
  DcpTensorSpec tensor = cut_tensor();
  tensor.chunks[1].file = tensor.chunks[0].file;
  tensor.chunks[1].offset = 8;
  EXPECT_THAT(open_one(tensor),
              FailsWith(ErrorCode::kCorrupt, "a slice begins inside the slice at byte 0"));
}

TEST(Dcp, RefusesFileNamesThatLeadElsewhere) {
  for (const std::string name : {"../__0_0.distcp", "/etc/passwd", "..", "a/b", ""}) {
    DcpTensorSpec tensor = whole_tensor("a");
    tensor.chunks[0].file = name;
    EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kInvalidArgument, "its file")) << name;
  }
}

TEST(Dcp, RefusesAPartThatIsASymbolicLink) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {whole_tensor("a")}});
  std::filesystem::rename(folder / "__0_0.distcp", folder / "elsewhere");
  std::filesystem::create_symlink("elsewhere", folder / "__0_0.distcp");
  EXPECT_THAT(open(folder), FailsWith(ErrorCode::kInvalidArgument, "symbolic link"));
}

TEST(Dcp, NamesAMissingPart) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {cut_tensor()}});
  std::filesystem::remove(folder / "__1_0.distcp");
  EXPECT_THAT(open(folder), FailsWith(ErrorCode::kNotFound, "__1_0.distcp"));
}

TEST(Dcp, RefusesTransformedSlices) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].transform = "zstd";
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kUnsupported, "transformed ('zstd')"));
}

TEST(Dcp, RefusesDeflatedSlices) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].bytes = tensor_zip({.shape = {2}, .bytes = f32({7, 8})}, "little", true);
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kUnsupported, "compressed"));
}

// FileSystemWriter(serialization_format=SerializationFormat.SAFETENSORS): one file of all tensors,
// which lie at byte 0 for the metadata.
TEST(Dcp, RefusesSafetensorsByName) {
  DcpTensorSpec one = whole_tensor("a");
  one.chunks[0].bytes = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  DcpTensorSpec other = whole_tensor("b");
  other.chunks[0].bytes = "{}";
  other.chunks[0].offset = 0;
  for (const auto& tensors : {std::vector{one}, std::vector{one, other}}) {
    const TempDir dir;
    EXPECT_THAT(
        open(write_dcp(dir, {.tensors = tensors})),
        FailsWith(ErrorCode::kUnsupported, "a safetensors file (SerializationFormat.SAFETENSORS)"));
  }
}

TEST(Dcp, RefusesSlicesThatTorchSaveDidNotWrite) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].bytes = "any bytes";
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kUnsupported, "not what torch.save writes"));
}

TEST(Dcp, RefusesSlicesOfMoreThanOneTensor) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].bytes = torch_zip({{.name = "x", .shape = {2}, .bytes = f32({7, 8})}});
  EXPECT_THAT(open_one(tensor), FailsWith(ErrorCode::kUnsupported, "does not contain exactly one"));
}

TEST(Dcp, ReadsSlicesThatAreLegacyTorchFiles) {
  PickleBuilder object;
  put_legacy_tensor(object.proto(), "7", 4, 1, 2);
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.chunks[0].bytes = legacy_file(object.stop().bytes(), {{"7", f32({6, 7, 8, 9})}});
  const TempDir dir;
  const auto checkpoint = open(write_dcp(dir, {.tensors = {whole_tensor("front"), tensor}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_TRUE(checkpoint->plain_range(1));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({7, 8}));
}

TEST(Dcp, ListsEveryTensorOfASliceThatIsNotRead) {
  DcpTensorSpec first = whole_tensor("a");
  first.chunks[0].bytes = tensor_zip({.shape = {2}, .bytes = f32({7, 8})}, "little", true);
  DcpTensorSpec second = whole_tensor("b");
  second.chunks[0].offset = 0;
  second.chunks[0].length = static_cast<std::int64_t>(first.chunks[0].bytes.size());
  second.chunks[0].bytes.clear();
  const TempDir dir;
  const auto all = open(write_dcp(dir, {.tensors = {first, second, whole_tensor("c")}}),
                        {.selection = Selection::kEverything});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(names(*all), ElementsAre("c"));
  ASSERT_EQ(all->refused_tensors().size(), 2U);
  EXPECT_EQ(all->refused_tensors()[0].reason, all->refused_tensors()[1].reason);
}

TEST(Dcp, ListsTheSecondTensorOfAPathAsRefused) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {whole_tensor("a"), whole_tensor("b")},
                                      .paths = {{"a", {"x", "y"}}, {"b", {"x.y"}}}});
  const auto all = open(folder, {.selection = Selection::kEverything});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(names(*all), ElementsAre("x.y"));
  ASSERT_EQ(all->refused_tensors().size(), 1U);
  EXPECT_EQ(all->refused_tensors()[0].reason, "another tensor has the same path");
}

TEST(Dcp, ListsATensorOfAnUnknownTypeAsRefused) {
  DcpTensorSpec tensor = whole_tensor("a");
  tensor.dtype = "float3";
  EXPECT_THAT(open_one(tensor),
              FailsWith(ErrorCode::kUnsupported, "'torch.float3' is not supported"));
  const auto all = open_one(tensor, {.selection = Selection::kEverything});
  ASSERT_THAT(all, IsOk());
  ASSERT_EQ(all->refused_tensors().size(), 1U);
  EXPECT_EQ(all->refused_tensors()[0].path, "a");
}

TEST(Dcp, RefusesMetadataOfAnotherKind) {
  const TempDir dir;
  EXPECT_THAT(open(write_dcp(dir, {.root = "Other"})),
              FailsWith(ErrorCode::kUnsupported, "not the metadata of a distributed checkpoint"));
}

TEST(Dcp, NamesAFolderWithoutMetadata) {
  const TempDir dir;
  const auto folder = write_dcp(dir, {.tensors = {cut_tensor()}});
  std::filesystem::remove(folder / ".metadata");
  EXPECT_THAT(open(folder), FailsWith(ErrorCode::kNotFound, "without its file '.metadata'"));
  EXPECT_THAT(open(folder / "__0_0.distcp"),
              FailsWith(ErrorCode::kUnsupported, "a part of a distributed checkpoint"));
}

TEST(Dcp, BoundsTheWorkOnSharedParts) {
  constexpr int kMany = 2000;  // tensors that share one list of as many chunks
  DcpTensorSpec tensor{.name = "t", .shape = {0}};
  tensor.chunks.assign(kMany, {.offsets = {0}, .sizes = {0}});
  PickleBuilder pickle;
  pickle.proto();
  dcp_builder::put_tensor_item(pickle, tensor);
  pickle.put(1).op('0');
  dcp_builder::put_object(pickle, kDcpModule, "Metadata",
                          {{"state_dict_metadata",
                            [&] {
                              pickle.empty_dict().mark();
                              for (int i = 0; i < kMany; ++i) {
                                pickle.string("t" + std::to_string(i)).get(1);
                              }
                              pickle.set_items();
                            }},
                           {"storage_data", [&] { pickle.empty_dict(); }}});
  const auto parsed = Pickle::parse(pickle.stop().bytes());
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parse_dcp_metadata(*parsed),
              FailsWith(ErrorCode::kUnsupported, "repeats its parts too often"));
}

TEST(Dcp, SaysWhatToDoWhenThereAreMoreFilesThanDescriptors) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "a sanitizer opens a pipe when it examines an object's type";
#endif
#endif
  const TempDir dir;
  DcpSpec spec;
  for (int i = 0; i < 64; ++i) {
    DcpTensorSpec tensor = whole_tensor("t" + std::to_string(i));
    tensor.chunks[0].file = "__" + std::to_string(i) + "_0.distcp";
    spec.tensors.push_back(tensor);
  }
  const auto folder = write_dcp(dir, spec);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 48;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto checkpoint = open(folder);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(checkpoint, FailsWith(ErrorCode::kIo, "ulimit -n"));
  EXPECT_THAT(open(folder), IsOk());
}

}  // namespace
}  // namespace onnx_external
