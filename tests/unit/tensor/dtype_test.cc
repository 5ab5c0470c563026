#include "onnx_external/dtype.h"

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

namespace onnx_external {
namespace {

TEST(DType, NamesAndNumbersIdentifyTheType) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_any_name(torch_name(dtype)), dtype);
    if (bit_size(dtype) < 8) {
      continue;
    }
    EXPECT_EQ(dtype_from_torch_name(torch_name(dtype)), dtype);
    if (dtype != DType::kComplex32) {
      EXPECT_EQ(dtype_from_onnx(onnx_data_type(dtype)), dtype);
    }
  }
}

TEST(DType, TypesOfLessThanAByteAreNotTypesOfFiles) {
  for (const DType dtype :
       {DType::kInt4, DType::kUInt4, DType::kFloat4E2M1, DType::kInt2, DType::kUInt2}) {
    EXPECT_EQ(bit_size(dtype), onnx_bits(onnx_data_type(dtype)));
    EXPECT_EQ(dtype_from_torch_name(torch_name(dtype)), std::nullopt);
    EXPECT_TRUE(shares_byte(dtype));
    EXPECT_FALSE(can_cast_from(dtype) || can_cast_to(dtype));
  }
  EXPECT_EQ(dtype_from_onnx(onnx_data_type(DType::kInt4)), std::nullopt);
  EXPECT_EQ(dtype_from_onnx(onnx_data_type(DType::kFloat4E2M1)), DType::kFloat4E2M1FnX2);
}

TEST(DType, AgreesWithTheLinkedOnnxWhereThatKnowsTheType) {
  EXPECT_EQ(onnx_data_type(DType::kFloat32), onnx::TensorProto::FLOAT);
  EXPECT_EQ(onnx_data_type(DType::kBFloat16), onnx::TensorProto::BFLOAT16);
  EXPECT_EQ(onnx_data_type(DType::kUInt64), onnx::TensorProto::UINT64);
  EXPECT_EQ(onnx_data_type(DType::kComplex64), onnx::TensorProto::COMPLEX64);
  for (int type = 1; type <= onnx::TensorProto::BFLOAT16; ++type) {
    EXPECT_EQ(onnx_type_name(type),
              onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type)));
  }
}

TEST(DType, HasTheSafetensorsNamesThatTorchHasTypesFor) {
  EXPECT_EQ(dtype_from_safetensors_name("BF16"), DType::kBFloat16);
  EXPECT_EQ(dtype_from_safetensors_name("F8_E4M3"), DType::kFloat8E4M3Fn);
  EXPECT_EQ(dtype_from_safetensors_name("F6_E2M3"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors_name(""), std::nullopt);
}

TEST(DType, AnswersForNumbersThatOnnxDoesNotHave) {
  EXPECT_EQ(onnx_bits(99), 0U);
  EXPECT_EQ(onnx_bits(-1), 0U);
  EXPECT_EQ(onnx_type_name(-1), "UNKNOWN");
  EXPECT_EQ(dtype_from_onnx(0), std::nullopt);
}

TEST(DType, SwapsComplexNumbersByHalves) {
  EXPECT_EQ(swap_unit(DType::kComplex128), 8U);
  EXPECT_EQ(swap_unit(DType::kFloat64), 8U);
}

}  // namespace
}  // namespace onnx_external
