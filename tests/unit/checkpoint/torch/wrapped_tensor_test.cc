// DTensors: what one process held is read if it is the whole tensor, and refused otherwise.
#include <gmock/gmock.h>

#include <functional>

#include "support/torch_file.h"

namespace onnx_external {
namespace {

using Put = std::function<void(PickleBuilder&)>;

void local_of_four(PickleBuilder& pickle) {
  put_tensor(pickle, {.shape = {2, 2}}, "0", 16);
}

Put placement(const std::string& module, const std::string& name) {
  return [=](PickleBuilder& pickle) {
    pickle.global(module, name).empty_tuple().new_object().empty_dict().build();
  };
}

const Put kReplicate = placement("torch.distributed.tensor.placement_types", "Replicate");
const Put kShard = placement("torch.distributed.tensor.placement_types", "Shard");
const Put kOldShard = placement("torch.distributed._tensor.placement_types", "Shard");
const Put kStrided = placement("torch.distributed.tensor.placement_types", "_StridedShard");
const Put kPartial = placement("torch.distributed.tensor.placement_types", "Partial");

struct WrapperTest {
  std::string module = "torch.distributed.tensor";
  std::string name = "DTensor";
  std::vector<std::int64_t> shape = {2, 2};
  Put local = local_of_four;  // nothing: the state has none
  std::vector<Put> placements = {kReplicate};
  bool in_spec = true;     // the placements
  bool as_slots = true;    // the state is (None, dict)
  std::string extra = {};  // another attribute in the state
  bool shortened = false;  // (class, dtype)
};

// The arguments of _rebuild_from_type_v2.
void put_state(PickleBuilder& pickle, const WrapperTest& test) {
  if (test.as_slots) {
    pickle.mark().none();
  }
  pickle.empty_dict().mark();
  if (test.local) {
    pickle.string("_local_tensor");
    test.local(pickle);
  }
  if (!test.extra.empty()) {
    pickle.string(test.extra).integer(1);
  }
  pickle.string("_spec").global("torch.distributed.tensor._dtensor_spec", "DTensorSpec");
  pickle.empty_tuple().new_object().empty_dict().mark();
  pickle.string(test.in_spec ? "placements" : "others").mark();
  for (const Put& put : test.placements) {
    put(pickle);
  }
  pickle.tuple().set_items().build().set_items();
  if (test.as_slots) {
    pickle.tuple();
  }
}

void put_wrapper(PickleBuilder& pickle, const WrapperTest& test) {
  pickle.global("torch._tensor", "_rebuild_from_type_v2").mark();
  pickle.global("torch._utils", "_rebuild_wrapper_subclass").global(test.module, test.name).mark();
  pickle.global(test.module, test.name).global("torch", "float32");
  if (!test.shortened) {
    pickle.integers(test.shape).integers({2, 1}).integer(0).none().string("cpu").boolean(false);
  }
  pickle.tuple();
  put_state(pickle, test);
  pickle.tuple().reduce();
}

Result<Checkpoint> open_wrapper(const WrapperTest& test) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_wrapper(pickle, test);
  pickle.set_items().stop();
  return open_bytes(zip_of(pickle, {f32({1, 2, 3, 4})}));
}

TEST(WrappedTensor, ADTensorIsReadIfItsProcessHeldAllOfIt) {
  const std::vector<WrapperTest> whole = {
      {},
      {.placements = {kReplicate, kShard}},
      {.module = "torch.distributed._tensor.api", .placements = {kOldShard}},
      {.placements = {kStrided}, .as_slots = false},
      {.extra = "_attribute"}};
  for (const WrapperTest& test : whole) {
    const auto checkpoint = open_wrapper(test);
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_EQ(checkpoint->tensors()[0].shape, (Shape{2, 2}));
    EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4}));
  }
}

TEST(WrappedTensor, APartOfADTensorIsRefused) {
  EXPECT_THAT(
      open_wrapper({.shape = {4, 2}, .placements = {kShard}}),
      FailsWith(ErrorCode::kUnsupported,
                "'w': it is a DTensor, and this file has only the [2, 2] of its [4, 2] that "
                "one process held; save tensor.full_tensor()"));
}

TEST(WrappedTensor, PartialSumsAreRejectedAlthoughTheirShapeIsWhole) {
  for (const std::vector<Put>& placements :
       {std::vector{kPartial}, std::vector{kReplicate, kPartial},
        std::vector{placement("torch.distributed.tensor.placement_types", "_NormPartial")},
        std::vector{placement("my", "Replicate")},
        std::vector<Put>{[](PickleBuilder& pickle) { pickle.string("Replicate"); }}}) {
    EXPECT_THAT(open_wrapper({.placements = placements}),
                FailsWith(ErrorCode::kUnsupported,
                          "parts of each value (Partial or similar); save "
                          "tensor.full_tensor() instead"));
  }
}

TEST(WrappedTensor, ADTensorWithoutItsPlacementIsRejected) {
  for (const WrapperTest& test :
       {WrapperTest{.placements = {}}, WrapperTest{.in_spec = false}, WrapperTest{.local = nullptr},
        WrapperTest{.local = [](PickleBuilder& pickle) { pickle.integer(3); }}}) {
    EXPECT_THAT(open_wrapper(test),
                FailsWith(ErrorCode::kUnsupported, "in a form that is not supported"));
  }
}

TEST(WrappedTensor, AStateThatReplacesTheDataIsRefused) {
  EXPECT_THAT(open_wrapper({.extra = "data"}),
              FailsWith(ErrorCode::kUnsupported, "its state sets 'data'"));
}

TEST(WrappedTensor, ACallWithoutAShapeIsDamage) {
  EXPECT_THAT(open_wrapper({.shortened = true}),
              FailsWith(ErrorCode::kCorrupt, "too few arguments"));
}

TEST(WrappedTensor, ADTensorInADTensorMustBeAllOfBoth) {
  const auto nested = [](std::vector<std::int64_t> inner) {
    return WrapperTest{
        .local = [inner](PickleBuilder& pickle) { put_wrapper(pickle, {.shape = inner}); }};
  };
  EXPECT_THAT(open_wrapper(nested({2, 2})), IsOk());
  EXPECT_THAT(open_wrapper(nested({4, 2})), FailsWith(ErrorCode::kUnsupported, "only the [4, 2]"));
}

TEST(WrappedTensor, OtherClassesAreRefusedByTheirName) {
  EXPECT_THAT(
      open_wrapper({.module = "torchao.quantization", .name = "Int4PreshuffledTensor"}),
      FailsWith(ErrorCode::kUnsupported,
                "it is a 'torchao.quantization.Int4PreshuffledTensor', a class that wraps other "
                "tensors; save the plain tensor that it represents instead, such as "
                "tensor.dequantize()"));
  EXPECT_THAT(open_wrapper({.module = "my"}), FailsWith(ErrorCode::kUnsupported, "'my.DTensor'"));
}

}  // namespace
}  // namespace onnx_external
