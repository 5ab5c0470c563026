#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  std::string bytes;
  put_le(bytes, header.size(), 8);
  return bytes + header + data;
}

Result<Checkpoint> open_safetensors(const std::string& bytes,
                                    Selection selection = Selection::kStateDict) {
  const TempDir dir;
  const std::vector<std::filesystem::path> paths{dir.write("m.safetensors", bytes)};
  return open_checkpoint(paths, {.selection = selection});
}

const std::string kTwo = R"({"b":{"dtype":"I8","shape":[2],"data_offsets":[4,6]},)"
                         R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";

TEST(Safetensors, ListsTensorsInTheOrderOfTheHeader) {
  const auto checkpoint = open_safetensors(safetensors(kTwo, "abcdef"));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "safetensors");
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[0].name, "b");
  EXPECT_EQ(checkpoint->plain_range(0)->offset, 8 + kTwo.size() + 4);
  std::string bytes(2, '\0');
  ASSERT_THAT(checkpoint->read(0, 0, std::as_writable_bytes(std::span(bytes))), IsOk());
  EXPECT_EQ(bytes, "ef");
}

TEST(Safetensors, AcceptsPaddingAndEmptyTensorsAndNoTensors) {
  EXPECT_THAT(open_safetensors(safetensors(kTwo + "   ", "abcdef")), IsOk());
  EXPECT_THAT(open_safetensors(safetensors("{}", "")), IsOk());
  EXPECT_THAT(
      open_safetensors(safetensors(R"({"e":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                                   R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                   "x")),
      IsOk());
}

TEST(Safetensors, HalvesTheLastDimensionOfF4) {
  const auto checkpoint = open_safetensors(
      safetensors(R"({"w":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}})", "abcd"));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kFloat4E2M1FnX2);
  EXPECT_EQ(checkpoint->tensors()[0].shape, (Shape{2, 2}));
}

TEST(Safetensors, RefusesTheLaterChunksOfADistributedTensor) {
  const auto with_offsets = [](const std::string& offsets) {
    return safetensors(R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"a\":{\"saved_offsets\":)" +
                           offsets + R"(}}"},)" + kTwo.substr(1),
                       "abcdef");
  };
  EXPECT_THAT(open_safetensors(with_offsets("[0, 0]")), IsOk());
  EXPECT_THAT(open_safetensors(with_offsets("[0, 4]")),
              FailsWith(ErrorCode::kUnsupported, "tensor 'a': one chunk of a tensor"));
  const auto all = open_safetensors(with_offsets("[0, 4]"), Selection::kEverything);
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->tensors().size(), 1U);
  ASSERT_EQ(all->refused_tensors().size(), 1U);
  EXPECT_EQ(all->refused_tensors()[0].path, "a");
}

TEST(Safetensors, RefusesPlacesOfChunksThatAreNotJson) {
  for (const char* info : {"\xEF\xBB\xBF{}", R"({}\u0000)", "{"}) {
    EXPECT_THAT(open_safetensors(safetensors(R"({"__metadata__":{"DCP_SHARDING_INFO":")" +
                                                 std::string(info) + R"("},)" + kTwo.substr(1),
                                             "abcdef")),
                FailsWith(ErrorCode::kCorrupt, "'DCP_SHARDING_INFO': byte"))
        << info;
  }
}

TEST(Safetensors, TakesTiedNamesFromTheMetadata) {
  const auto checkpoint = open_safetensors(
      safetensors(R"({"__metadata__":{"format":"pt","lm_head.weight":"w","gone":"unknown"},)"
                  R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                  "x"));
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(checkpoint->tied_names().size(), 1U);
  EXPECT_EQ(checkpoint->tied_names()[0],
            std::pair(std::string("lm_head.weight"), std::string("w")));
}

TEST(Safetensors, RefusesAByteOrderMarkAndNulPadding) {
  EXPECT_THAT(open_safetensors(safetensors("\xEF\xBB\xBF" + kTwo, "abcdef")),
              FailsWith(ErrorCode::kCorrupt, "header: byte 1: a byte order mark"));
  for (const std::string& padding : {std::string(3, '\0'), std::string("\0}", 2)}) {
    EXPECT_THAT(open_safetensors(safetensors(kTwo + padding, "abcdef")),
                FailsWith(ErrorCode::kCorrupt,
                          "header: byte " + std::to_string(kTwo.size() + 1) + ": a NUL byte"));
  }
}

struct HeaderFault {
  const char* name;
  std::string header;
  std::string data;
  const char* message;
};
class SafetensorsLie : public ::testing::TestWithParam<HeaderFault> {};

TEST_P(SafetensorsLie, IsRefused) {
  EXPECT_THAT(open_safetensors(safetensors(GetParam().header, GetParam().data)),
              FailsWith(ErrorCode::kCorrupt, GetParam().message));
}

std::string one(const std::string& shape, const std::string& offsets, const char* type = "U8") {
  return R"({"w":{"dtype":")" + std::string(type) + R"(","shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}
std::string pair_of(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
         R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, SafetensorsLie,
    ::testing::Values(
        HeaderFault{"NotJson", "{", "", "header"}, HeaderFault{"NotAnObject", "[]", "", ""},
        HeaderFault{"Hole", pair_of("[0,2]", "[3,5]"), "abcde", "there is a hole"},
        HeaderFault{"StartsLate", one("[2]", "[1,3]"), "abc", "there is a hole"},
        HeaderFault{"Overlap", pair_of("[0,2]", "[1,3]"), "abc", "they overlap"},
        HeaderFault{"SamePlace", pair_of("[0,2]", "[0,2]"), "ab", "they overlap"},
        HeaderFault{"TrailingBytes", one("[2]", "[0,2]"), "abc", "describes 2 bytes of data"},
        HeaderFault{"CutOff", one("[2]", "[0,2]"), "a", "describes 2 bytes of data"},
        HeaderFault{"WrongLength", one("[3]", "[0,2]"), "ab", "make 3 bytes"},
        HeaderFault{"EndBeforeBegin", one("[2]", "[2,0]"), "ab", "end before they begin"},
        HeaderFault{"ProductWraps", one("[4294967296,4294967296]", "[0,0]"), "", "too large"},
        HeaderFault{"NegativeDimension", one("[-1]", "[0,1]"), "a", "'shape'"},
        HeaderFault{"FractionDimension", one("[1.0]", "[0,1]"), "a", "'shape'"},
        HeaderFault{"TextDimension", one("[\"1\"]", "[0,1]"), "a", "'shape'"},
        HeaderFault{"ThreeOffsets", one("[1]", "[0,1,2]"), "a", "'data_offsets'"},
        HeaderFault{"ExtraMember", R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})",
                    "a", "not {dtype, shape, data_offsets}"},
        HeaderFault{"MissingMember", R"({"w":{"dtype":"U8","shape":[1]}})", "", "not {dtype"},
        HeaderFault{"TwinKeys",
                    R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                    R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                    "", "twice"},
        HeaderFault{"MetadataNotStrings", R"({"__metadata__":{"a":1}})", "", "is not a string"},
        HeaderFault{"MetadataNotObject", R"({"__metadata__":[]})", "", "is not an object"},
        HeaderFault{"OddF4", one("[3]", "[0,2]", "F4"), "ab", "even last dimension"},
        HeaderFault{"ScalarF4", one("[]", "[0,1]", "F4"), "a", "even last dimension"}),
    [](const auto& lie) { return std::string(lie.param.name); });

TEST(Safetensors, RefusesUnknownTypesOrListsThem) {
  const std::string bytes = safetensors(one("[1]", "[0,1]", "X9"), "a");
  EXPECT_THAT(open_safetensors(bytes), FailsWith(ErrorCode::kUnsupported, "element type 'X9'"));
  const auto listed = open_safetensors(bytes, Selection::kEverything);
  ASSERT_THAT(listed, IsOk());
  EXPECT_EQ(listed->refused_tensors().size(), 1U);
}

TEST(Safetensors, RefusesHeadersLongerThanTheFileOrTheLimit) {
  std::string cut = safetensors(kTwo, "abcdef").substr(0, 20);
  EXPECT_THAT(open_safetensors(cut), FailsWith(ErrorCode::kCorrupt, "past the end of the file"));
  poke_le(cut, 0, 100'000'001, 8);
  EXPECT_THAT(open_safetensors(cut), FailsWith(ErrorCode::kCorrupt, "the format allows"));
  poke_le(cut, 0, ~std::uint64_t{0}, 8);
  EXPECT_THAT(open_safetensors(cut), FailsWith(ErrorCode::kCorrupt, "the format allows"));
}

TEST(Safetensors, EveryCutIsRefused) {
  const std::string whole = safetensors(kTwo, "abcdef");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(open_safetensors(whole.substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace onnx_external
