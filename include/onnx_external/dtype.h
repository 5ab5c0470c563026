// Defines the element types of tensors, with their sizes and their names in torch, safetensors and
// ONNX.
//
// All functions are pure lookups in tables, safe from any thread. The tables come from
// torch/_utils.py and torch/storage.py, the safetensors format text, and TensorProto.DataType in
// onnx.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace onnx_external {

// The element types of tensors in torch and safetensors checkpoints.
enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt64,
  kUInt32,
  kUInt16,
  kUInt8,
  kBool,
  kComplex128,
  kComplex64,
  kComplex32,  // no ONNX type
  kFloat8E4M3Fn,
  kFloat8E4M3FnUz,
  kFloat8E5M2,
  kFloat8E5M2FnUz,
  kFloat8E8M0FnU,
  kFloat4E2M1FnX2,  // one byte holds two values, the first in the low nibble; shapes count bytes

  // ONNX's sub-byte types, packed as in ONNX: the first value in the lowest bits, no gap between
  // rows. Shapes count values. Only tensors that the caller provides (provided_tensors.h) have
  // these types.
  kInt4,
  kUInt4,
  kFloat4E2M1,
  kInt2,
  kUInt2,
};
inline constexpr std::size_t kDTypeCount = 27;

// Bytes of one element, 1 to 16. An element of kFloat4E2M1FnX2 is a byte that holds two values.
// Returns 1 for sub-byte types; contiguous_nbytes() gives the size of their tensors.
[[nodiscard]] std::uint32_t byte_size(DType dtype);

// Bits of one element: 2 or 4 for sub-byte types, otherwise 8 times byte_size().
[[nodiscard]] std::uint32_t bit_size(DType dtype);

// True for sub-byte types and kFloat4E2M1FnX2: a byte holds several values, so they cannot be moved
// one by one.
[[nodiscard]] bool shares_byte(DType dtype);

// The number of bytes to reverse as one group when the byte order changes: half an element for
// complex types.
[[nodiscard]] std::uint32_t swap_unit(DType dtype);

// "float32", "bfloat16", "float8_e4m3fn", ...: torch's short names, which all output uses.
[[nodiscard]] std::string_view torch_name(DType dtype);
// Parses a name in torch's short form. Nullopt for sub-byte types, which have no name in torch.
[[nodiscard]] std::optional<DType> dtype_from_torch_name(std::string_view name);
// Also accepts the names of sub-byte types, which are ONNX's names in lower case: "int4".
[[nodiscard]] std::optional<DType> dtype_from_any_name(std::string_view name);

// Parses "F32", "BF16", "F8_E4M3", ...; nullopt if the name is unknown or torch has no such type.
[[nodiscard]] std::optional<DType> dtype_from_safetensors_name(std::string_view name);

// TensorProto.DataType as a plain number, so that types newer than the linked onnx are possible. 0
// (UNDEFINED) for kComplex32, which ONNX lacks. The reverse function returns kFloat4E2M1FnX2 for
// FLOAT4E2M1, and nullopt for the other sub-byte types, whose data in a graph is a sequence of
// bytes.
[[nodiscard]] std::int32_t onnx_data_type(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_onnx(std::int32_t data_type);

// Bits of one element of an ONNX data type (4 for INT4, UINT4 and FLOAT4E2M1, 2 for INT2, UINT2);
// 0 for UNDEFINED, STRING and unknown numbers.
[[nodiscard]] std::uint32_t onnx_bits(std::int32_t data_type);

// "FLOAT", "BFLOAT16", ... for messages; "UNKNOWN" for an unknown number.
[[nodiscard]] std::string_view onnx_type_name(std::int32_t data_type);

// True for real and complex floating-point types (float*, bfloat16, complex*, fp8, fp4).
[[nodiscard]] bool is_floating(DType dtype);
[[nodiscard]] bool onnx_is_floating(std::int32_t data_type);

// Return whether values can be converted from or to a type. float64, float32, float16 and bfloat16
// can be converted in both directions, 8-bit float types only to other types.
[[nodiscard]] bool can_cast_from(DType dtype);
[[nodiscard]] bool can_cast_to(DType dtype);

}  // namespace onnx_external
