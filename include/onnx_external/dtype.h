// Defines the element types of tensors, with their sizes and their names in torch, safetensors and
// ONNX.
//
// All functions are lookups in constant tables and may be called from any thread. The tables come
// from torch/_utils.py and torch/storage.py, the safetensors format text, and TensorProto.DataType
// in onnx.proto.
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
  kComplex32,  // ONNX lacks this type
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

// Returns the size of one element in bytes, 1 to 16. An element of kFloat4E2M1FnX2 is a byte that
// holds two values. For sub-byte types the result is 1; use contiguous_nbytes() for the size of
// their tensors.
[[nodiscard]] std::uint32_t byte_size(DType dtype);

// Returns the size of one element in bits: 2 or 4 for sub-byte types, otherwise 8 times
// byte_size().
[[nodiscard]] std::uint32_t bit_size(DType dtype);

// Returns true for sub-byte types and kFloat4E2M1FnX2. A byte of these types holds several values,
// so single values cannot be moved by copying bytes.
[[nodiscard]] bool shares_byte(DType dtype);

// Returns the number of bytes that are reversed as one group to change the byte order. It is the
// size of an element or, for complex types, of half an element.
[[nodiscard]] std::uint32_t swap_unit(DType dtype);

// Returns torch's short name, such as "float32", "bfloat16" or "float8_e4m3fn". All output uses
// these names.
[[nodiscard]] std::string_view torch_name(DType dtype);
// Parses a name in torch's short form. Nullopt for sub-byte types, which have no name in torch.
[[nodiscard]] std::optional<DType> dtype_from_torch_name(std::string_view name);
// Parses a name in torch's short form, or the name of a sub-byte type, which is ONNX's name in
// lower case ("int4").
[[nodiscard]] std::optional<DType> dtype_from_any_name(std::string_view name);

// Parses the name of a type in safetensors, such as "F32", "BF16" or "F8_E4M3". Nullopt if the name
// is unknown or torch has no such type.
[[nodiscard]] std::optional<DType> dtype_from_safetensors_name(std::string_view name);

// Converts to and from TensorProto.DataType, as an integer, because the linked onnx may not define
// all types. onnx_data_type() returns 0 (UNDEFINED) for kComplex32, which ONNX lacks.
// dtype_from_onnx() returns kFloat4E2M1FnX2 for FLOAT4E2M1, and nullopt for the other sub-byte
// types, because their data in a graph is handled as a sequence of bytes.
[[nodiscard]] std::int32_t onnx_data_type(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_onnx(std::int32_t data_type);

// Returns the number of bits of one element of an ONNX data type: 4 for INT4, UINT4 and FLOAT4E2M1,
// and 2 for INT2 and UINT2. Returns 0 for UNDEFINED, STRING and unknown types.
[[nodiscard]] std::uint32_t onnx_bits(std::int32_t data_type);

// Returns the name of an ONNX data type for messages, such as "FLOAT" or "BFLOAT16"; "UNKNOWN" for
// an unknown type.
[[nodiscard]] std::string_view onnx_type_name(std::int32_t data_type);

// Return true for real and complex floating-point types (float*, bfloat16, complex*, fp8, fp4).
[[nodiscard]] bool is_floating(DType dtype);
// Returns whether the type is one of the 8-bit floats with a sign, of which weights consist.
[[nodiscard]] bool is_float8(DType dtype);
[[nodiscard]] bool onnx_is_floating(std::int32_t data_type);

// Return whether the library can convert values from or to a type. Values of float64, float32,
// float16 and bfloat16 can be converted to each other. Values of 8-bit float types can be converted
// to these types, but not the other way round.
[[nodiscard]] bool can_cast_from(DType dtype);
[[nodiscard]] bool can_cast_to(DType dtype);

}  // namespace onnx_external
