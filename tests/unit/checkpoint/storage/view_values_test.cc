#include <gmock/gmock.h>

#include "support/torch_file.h"

namespace onnx_external {
namespace {

struct BitsTest {
  std::string storage = "FloatStorage";
  std::int64_t count = 4;
  std::string bit = "neg";
  bool value = true;
};

Result<Checkpoint> open_bits(const BitsTest& test, const std::string& bytes) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage").global("torch", test.storage).string("0").string("cpu");
  pickle.integer(test.count).tuple().persistent_id().integer(0).integers({test.count});
  pickle.integers({1}).boolean(false).ordered_dict();
  pickle.empty_dict().mark().string(test.bit).boolean(test.value).set_items();
  pickle.tuple().reduce().set_items().stop();
  return open_bytes(zip_of(pickle, {bytes}));
}

TEST(ViewValues, AppliesConjAndNeg) {
  const auto neg = open_bits({}, f32({1, -2, 3, -0.0F}));
  ASSERT_THAT(neg, IsOk());
  EXPECT_EQ(read_all(*neg, 0), f32({-1, 2, -3, 0}));
  EXPECT_EQ(neg->plain_range(0), std::nullopt);
  const auto conj =
      open_bits({.storage = "ComplexFloatStorage", .count = 2, .bit = "conj"}, f32({1, -2, 3, 4}));
  ASSERT_THAT(conj, IsOk());
  EXPECT_EQ(read_all(*conj, 0), f32({1, 2, 3, -4}));
}

TEST(ViewValues, LeavesBitsThatAreOff) {
  const auto checkpoint = open_bits({.value = false}, f32({1, 2, 3, 4}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_NE(checkpoint->plain_range(0), std::nullopt);
}

TEST(ViewValues, RefusesBitsThatTheTypeDoesNotHave) {
  EXPECT_THAT(open_bits({.bit = "conj"}, f32({1, 2, 3, 4})),
              FailsWith(ErrorCode::kUnsupported, "which float32 cannot be"));
  EXPECT_THAT(open_bits({.storage = "IntStorage"}, f32({1, 2, 3, 4})),
              FailsWith(ErrorCode::kUnsupported, "which int32 cannot be"));
}

TEST(ViewValues, RefusesUnknownBits) {
  EXPECT_THAT(open_bits({.bit = "mirrored"}, f32({1, 2, 3, 4})),
              FailsWith(ErrorCode::kUnsupported, "metadata sets 'mirrored'"));
}

TEST(ViewValues, RefusesStoragesOnTheMetaDevice) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage").global("torch", "FloatStorage").string("0");
  pickle.string("meta").integer(4).tuple().persistent_id().integer(0).integers({4}).integers({1});
  pickle.boolean(false).ordered_dict().tuple().reduce().set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle, {f32({1, 2, 3, 4})})),
              FailsWith(ErrorCode::kUnsupported, "meta device, which has no data"));
}

// (1 + 2i, -0.5 + inf i) in halves.
const std::string kHalves = {'\x00', '\x3c', '\x00', '\x40', '\x00', '\xb8', '\x00', '\x7c'};

TEST(ViewValues, RefusesComplex32WithTheOption) {
  EXPECT_THAT(open_bytes(torch_zip(
                  {{.name = "w", .dtype = DType::kComplex32, .shape = {2}, .bytes = kHalves}})),
              FailsWith(ErrorCode::kUnsupported, "it can become complex64"));
}

TEST(ViewValues, WidensComplex32) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto checkpoint = open_bytes(
      torch_zip(
          {{.name = "w", .dtype = DType::kComplex32, .shape = {2}, .bytes = kHalves},
           {.name = "last", .dtype = DType::kComplex32, .shape = {}, .offset = 1, .shares = "w"},
           {.name = "tied", .dtype = DType::kComplex32, .shape = {2}, .shares = "w"}}),
      {.widen_complex32 = true});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kComplex64);
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, -0.5, inf}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({-0.5, inf}));
  EXPECT_EQ(checkpoint->tensors()[2].storage, checkpoint->tensors()[0].storage);
  std::string cut(9, '?');
  EXPECT_THAT(checkpoint->read(0, 3, std::as_writable_bytes(std::span(cut))), IsOk());
  EXPECT_EQ(cut, f32({1, 2, -0.5, inf}).substr(3, 9));
}

}  // namespace
}  // namespace onnx_external
