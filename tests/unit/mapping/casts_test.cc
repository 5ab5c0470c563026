#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

TEST(Casts, AreRefusedUnlessAllowed) {
  MappingCase it;
  it.input("fc.weight");
  it.input("fc.bias");
  it.key("fc.weight");
  it.key("fc.bias").dtype = DType::kBFloat16;
  EXPECT_THAT(it.map(), FailsWith(ErrorCode::kMismatch, "fc.bias"));
  it.options.casts = Casts::kAllow;
  EXPECT_EQ(it.pairs(),
            (std::vector<std::string>{"fc.weight<-fc.weight (exact)", "fc.bias<-fc.bias (exact)"}));
}

TEST(Casts, AreOfferedWhereTheyWouldHelp) {
  MappingCase it;
  it.open("fc.weight");
  it.open("fc.bias");
  it.key("fc.weight");
  it.key("fc.bias").dtype = DType::kFloat16;
  const auto refused = it.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kMismatch, "fc.bias"));
  ASSERT_TRUE(refused.error().details != nullptr);
  const Remedy& remedy = refused.error().details->remedies.at(0);
  EXPECT_EQ(remedy.option, RemedyOption::kDtype);
  EXPECT_EQ(remedy.value, "slot");
  it.keys.keys[1].dtype = DType::kInt64;
  const auto whole = it.map();
  ASSERT_FALSE(whole.has_value());
  EXPECT_TRUE(whole.error().details->remedies.empty());
}

TEST(Casts, LeaveShapesAlone) {
  MappingCase it;
  it.options.casts = Casts::kAllow;
  it.input("fc.weight");
  it.input("fc.bias");
  it.key("fc.weight");
  it.key("fc.bias", {2, 3}).dtype = DType::kFloat16;
  EXPECT_THAT(it.map(), FailsWith(ErrorCode::kMismatch, "fc.bias"));
}

TEST(Casts, ConvertFloatsOnly) {
  for (const DType dtype : {DType::kInt32, DType::kBool, DType::kComplex64, DType::kUInt8}) {
    MappingCase it;
    it.options.casts = Casts::kAllow;
    it.input("fc.weight");
    it.input("fc.bias");
    it.key("fc.weight");
    it.key("fc.bias").dtype = dtype;
    EXPECT_THAT(it.map(), FailsWith(ErrorCode::kMismatch, "fc.bias")) << torch_name(dtype);
  }
  MappingCase it;
  it.options.casts = Casts::kAllow;
  it.input("steps").elem_type = onnx_data_type(DType::kInt64);
  it.input("fc.bias");
  it.key("steps");
  it.key("fc.bias");
  EXPECT_THAT(it.map(), FailsWith(ErrorCode::kMismatch, "steps"));
}

TEST(Casts, ReadEightBitFloats) {
  MappingCase it;
  it.options.casts = Casts::kAllow;
  it.input("w");
  it.key("w").dtype = DType::kFloat8E4M3Fn;
  EXPECT_EQ(it.pairs(), std::vector<std::string>{"w<-w (exact)"});
  // But no slot of such a type is filled by converting.
  it.graph.slots[0].elem_type = onnx_data_type(DType::kFloat8E5M2);
  EXPECT_FALSE(it.map().has_value());
}

}  // namespace
}  // namespace onnx_external
