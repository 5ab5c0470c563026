#include "save/plan_checks.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using enum Layout;

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

WriteOptions sha1() {
  WriteOptions options;
  options.checksum = Checksum::kSha1;
  return options;
}

TEST(OptionRules, TakeWhatHasAnEffect) {
  EXPECT_THAT(check_option_rules({}, {}, Casts::kRefuse), IsOk());
  EXPECT_THAT(check_option_rules({.layout = kShards, .max_shard_bytes = 5, .alignment = 64}, {},
                                 Casts::kAllow),
              IsOk());
  EXPECT_THAT(check_option_rules({.layout = kSingle, .alignment = 64, .dtype = DType::kFloat16},
                                 sha1(), Casts::kRefuse),
              IsOk());
}

TEST(OptionRules, RefuseASizeOfShardsWithoutShards) {
  for (const Layout layout : {kPerTensor, kSingle, kInline, kLink}) {
    EXPECT_THAT(check_option_rules({.layout = layout, .max_shard_bytes = 5}, {}, Casts::kRefuse),
                FailsWith(kInvalid, "only to the layout 'shards'"));
  }
}

TEST(OptionRules, RefuseAnAlignmentWithoutSharedFiles) {
  for (const Layout layout : {kPerTensor, kInline, kLink}) {
    EXPECT_THAT(check_option_rules({.layout = layout, .alignment = 64}, {}, Casts::kRefuse),
                FailsWith(kInvalid, "only to the layouts 'single' and 'shards'"));
  }
}

TEST(OptionRules, RefuseWhatNeedsDataFilesWhereThereAreNone) {
  EXPECT_THAT(check_option_rules({.layout = kInline}, sha1(), Casts::kRefuse),
              FailsWith(kInvalid, "a checksum applies to data files"));
}

TEST(OptionRules, RefuseNewBytesWithLinks) {
  EXPECT_THAT(check_option_rules({.layout = kLink}, sha1(), Casts::kRefuse),
              FailsWith(kInvalid, "requires reading whole files"));
  EXPECT_THAT(check_option_rules({.layout = kLink, .dedup = Dedup::kContent}, {}, Casts::kRefuse),
              FailsWith(kInvalid, "equal bytes"));
  EXPECT_THAT(check_option_rules({.layout = kLink}, {}, Casts::kAllow),
              FailsWith(kInvalid, "it cannot convert values"));
  EXPECT_THAT(check_option_rules({.layout = kLink, .dtype = DType::kFloat16}, {}, Casts::kRefuse),
              FailsWith(kInvalid, "it cannot convert values"));
}

TEST(OptionRules, RefuseTypesThatNothingIsConvertedTo) {
  for (const DType dtype : {DType::kInt64, DType::kFloat8E4M3Fn, DType::kComplex64}) {
    EXPECT_THAT(check_option_rules({.dtype = dtype}, {}, Casts::kRefuse),
                FailsWith(kInvalid, "not to " + std::string(torch_name(dtype))));
  }
}

TEST(OptionRules, RefuseTwoWaysToConvert) {
  EXPECT_THAT(check_option_rules({.dtype = DType::kFloat16}, {}, Casts::kAllow),
              FailsWith(kInvalid, "leave out the cast"));
}

}  // namespace
}  // namespace onnx_external
