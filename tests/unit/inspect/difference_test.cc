#include "inspect/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TestTensor bytes_called(const std::string& name, const std::string& bytes) {
  return {.name = name,
          .dtype = DType::kUInt8,
          .shape = {static_cast<std::int64_t>(bytes.size())},
          .bytes = bytes};
}

Result<Difference> difference(const fs::path& a, const fs::path& b,
                              const DifferenceOptions& options = {}) {
  const std::array first{a};
  const std::array second{b};
  return find_difference(first, second, options);
}

std::vector<std::string> names(const std::vector<InspectedTensor>& tensors) {
  std::vector<std::string> list;
  for (const InspectedTensor& tensor : tensors) {
    list.push_back(tensor.name);
  }
  return list;
}

std::vector<std::string> names(const std::vector<TensorPair>& pairs) {
  std::vector<std::string> list;
  for (const TensorPair& pair : pairs) {
    list.push_back(pair.a.name);
  }
  return list;
}

class Differences : public testing::Test {
 protected:
  TempDir dir_;
  fs::path a_ =
      dir_.write("a.pt", torch_zip({bytes_called("same", "abcd"), bytes_called("bytes", "abcd"),
                                    bytes_called("shape", "abcd"), bytes_called("gone", "abcd")}));
  fs::path b_ =
      dir_.write("b.pt", torch_zip({bytes_called("new", "abcd"), bytes_called("shape", "abc"),
                                    bytes_called("bytes", "abce"), bytes_called("same", "abcd")}));
};

TEST_F(Differences, AreNamesFormsAndBytes) {
  const auto found = difference(a_, b_);
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(names(found->only_a), ElementsAre("gone"));
  EXPECT_THAT(names(found->only_b), ElementsAre("new"));
  EXPECT_THAT(names(found->forms), ElementsAre("shape"));
  EXPECT_THAT(names(found->bytes), ElementsAre("bytes"));
  EXPECT_EQ(found->equal, 1U);
  EXPECT_EQ(found->bytes_read, 16U) << "of another shape nothing is read";
  EXPECT_FALSE(found->none());
}

TEST_F(Differences, AreNoneBetweenAFileAndItself) {
  const auto found = difference(a_, a_);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->none());
  EXPECT_EQ(found->equal, 4U);
}

TEST_F(Differences, LeaveBytesAloneWhenAsked) {
  DifferenceOptions options;
  options.bytes = CompareBytes::kNo;
  options.filter = *NameFilter::make("^(same|bytes)$");
  const auto found = difference(a_, b_, options);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->none());
  EXPECT_EQ(found->equal, 2U);
  EXPECT_EQ(found->bytes_read, 0U);
}

TEST_F(Differences, SeeThroughNestingAndDataParallel) {
  const auto nested = dir_.write(
      "nested.pt",
      torch_zip({bytes_called("module.same", "abcd"), bytes_called("module.gone", "abcd"),
                 bytes_called("module.bytes", "abcd"), bytes_called("module.shape", "abcd")},
                {.nested_in = "state_dict"}));
  const auto found = difference(a_, nested);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->none());
}

TEST_F(Differences, AreFoundInTheDictOfAKeyOrNowhere) {
  DifferenceOptions options;
  options.inspect.open.key = "state_dict";
  const auto nested = dir_.write(
      "nested.pt", torch_zip({bytes_called("same", "abcd")}, {.nested_in = "state_dict"}));
  const auto found = difference(nested, nested, options);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->equal, 1U);
  EXPECT_FALSE(difference(nested, a_, options));  // a_ has no such dict
}

TEST(Listing, KeepsWhatMatchesAndSorts) {
  Inspection inspection;
  for (const auto& [name, nbytes] :
       {std::pair("b.weight", 4U), {"a.weight", 8U}, {"a.bias", 8U}, {"c", 1U}}) {
    inspection.tensors.push_back({.name = name,
                                  .dtype = {},
                                  .shape = {},
                                  .nbytes = nbytes,
                                  .file = {},
                                  .view = {},
                                  .sha256 = {},
                                  .problem = {}});
  }
  keep_matching(inspection, *NameFilter::make("weight|bias"));
  EXPECT_EQ(inspection.bytes, 20U);
  sort_tensors(inspection, ListOrder::kSize);
  EXPECT_THAT(names(inspection.tensors), ElementsAre("a.weight", "a.bias", "b.weight"));
  sort_tensors(inspection, ListOrder::kName);
  EXPECT_THAT(names(inspection.tensors), ElementsAre("a.bias", "a.weight", "b.weight"));
  EXPECT_THAT(NameFilter::make("("), FailsWith(ErrorCode::kInvalidArgument, "missing"));
}

}  // namespace
}  // namespace onnx_external
