#include "onnx_external/dtype.h"

#include <array>
#include <utility>

namespace onnx_external {
namespace {

struct Row {
  DType dtype;
  std::uint32_t bytes;
  std::uint32_t swap;
  bool floating;
  std::int32_t onnx;
  std::string_view torch;
  std::string_view safetensors;  // "" = safetensors has none
};

// In the order of the enumerators, which is checked below.
constexpr std::array<Row, kDTypeCount> kRows{{
    {DType::kFloat64, 8, 8, true, 11, "float64", "F64"},
    {DType::kFloat32, 4, 4, true, 1, "float32", "F32"},
    {DType::kFloat16, 2, 2, true, 10, "float16", "F16"},
    {DType::kBFloat16, 2, 2, true, 16, "bfloat16", "BF16"},
    {DType::kInt64, 8, 8, false, 7, "int64", "I64"},
    {DType::kInt32, 4, 4, false, 6, "int32", "I32"},
    {DType::kInt16, 2, 2, false, 5, "int16", "I16"},
    {DType::kInt8, 1, 1, false, 3, "int8", "I8"},
    {DType::kUInt64, 8, 8, false, 13, "uint64", "U64"},
    {DType::kUInt32, 4, 4, false, 12, "uint32", "U32"},
    {DType::kUInt16, 2, 2, false, 4, "uint16", "U16"},
    {DType::kUInt8, 1, 1, false, 2, "uint8", "U8"},
    {DType::kBool, 1, 1, false, 9, "bool", "BOOL"},
    {DType::kComplex128, 16, 8, true, 15, "complex128", ""},
    {DType::kComplex64, 8, 4, true, 14, "complex64", "C64"},
    {DType::kComplex32, 4, 2, true, 0, "complex32", ""},
    {DType::kFloat8E4M3Fn, 1, 1, true, 17, "float8_e4m3fn", "F8_E4M3"},
    {DType::kFloat8E4M3FnUz, 1, 1, true, 18, "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {DType::kFloat8E5M2, 1, 1, true, 19, "float8_e5m2", "F8_E5M2"},
    {DType::kFloat8E5M2FnUz, 1, 1, true, 20, "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    {DType::kFloat8E8M0FnU, 1, 1, true, 24, "float8_e8m0fnu", "F8_E8M0"},
    {DType::kFloat4E2M1FnX2, 1, 1, true, 23, "float4_e2m1fn_x2", "F4"},
    {DType::kInt4, 1, 1, false, 22, "int4", ""},
    {DType::kUInt4, 1, 1, false, 21, "uint4", ""},
    {DType::kFloat4E2M1, 1, 1, true, 23, "float4e2m1", ""},
    {DType::kInt2, 1, 1, false, 26, "int2", ""},
    {DType::kUInt2, 1, 1, false, 25, "uint2", ""},
}};

constexpr bool rows_follow_the_enumerators() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) {
      return false;
    }
  }
  return true;
}
static_assert(rows_follow_the_enumerators());

const Row& row(DType dtype) {
  return kRows[static_cast<std::size_t>(dtype)];
}

struct OnnxRow {
  std::string_view name;
  std::uint32_t bits;
  bool floating;
};

// Index = TensorProto.DataType (onnx.proto of onnx 1.22).
constexpr std::array<OnnxRow, 27> kOnnxRows{{
    {"UNDEFINED", 0, false},     {"FLOAT", 32, true},     {"UINT8", 8, false},
    {"INT8", 8, false},          {"UINT16", 16, false},   {"INT16", 16, false},
    {"INT32", 32, false},        {"INT64", 64, false},    {"STRING", 0, false},
    {"BOOL", 8, false},          {"FLOAT16", 16, true},   {"DOUBLE", 64, true},
    {"UINT32", 32, false},       {"UINT64", 64, false},   {"COMPLEX64", 64, true},
    {"COMPLEX128", 128, true},   {"BFLOAT16", 16, true},  {"FLOAT8E4M3FN", 8, true},
    {"FLOAT8E4M3FNUZ", 8, true}, {"FLOAT8E5M2", 8, true}, {"FLOAT8E5M2FNUZ", 8, true},
    {"UINT4", 4, false},         {"INT4", 4, false},      {"FLOAT4E2M1", 4, true},
    {"FLOAT8E8M0", 8, true},     {"UINT2", 2, false},     {"INT2", 2, false},
}};

const OnnxRow& onnx_row(std::int32_t data_type) {
  static constexpr OnnxRow kUnknown{"UNKNOWN", 0, false};
  const auto index = static_cast<std::size_t>(data_type);
  return data_type >= 0 && index < kOnnxRows.size() ? kOnnxRows[index] : kUnknown;
}

template <typename Member, typename Value>
std::optional<DType> find_by(Member member, const Value& value) {
  for (const Row& candidate : kRows) {
    if (candidate.*member == value) {
      return candidate.dtype;
    }
  }
  return std::nullopt;
}

// Returns whether an element has less than a byte.
bool is_narrow(DType dtype) {
  return dtype >= DType::kInt4;  // these are the last enumerators
}

}  // namespace

std::uint32_t byte_size(DType dtype) {
  return row(dtype).bytes;
}
std::uint32_t bit_size(DType dtype) {
  constexpr std::uint32_t kByte = 8;
  return is_narrow(dtype) ? onnx_bits(onnx_data_type(dtype)) : byte_size(dtype) * kByte;
}
bool shares_byte(DType dtype) {
  return is_narrow(dtype) || dtype == DType::kFloat4E2M1FnX2;
}
std::uint32_t swap_unit(DType dtype) {
  return row(dtype).swap;
}
std::string_view torch_name(DType dtype) {
  return row(dtype).torch;
}
std::int32_t onnx_data_type(DType dtype) {
  return row(dtype).onnx;
}
bool is_floating(DType dtype) {
  return row(dtype).floating;
}

std::optional<DType> dtype_from_torch_name(std::string_view name) {
  const auto found = dtype_from_any_name(name);
  return found && is_narrow(*found) ? std::nullopt : found;
}

std::optional<DType> dtype_from_any_name(std::string_view name) {
  return find_by(&Row::torch, name);
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  return name.empty() ? std::nullopt : find_by(&Row::safetensors, name);
}

std::optional<DType> dtype_from_onnx(std::int32_t data_type) {
  const auto found = data_type == 0 ? std::nullopt : find_by(&Row::onnx, data_type);
  return found && is_narrow(*found) ? std::nullopt : found;
}

std::uint32_t onnx_bits(std::int32_t data_type) {
  return onnx_row(data_type).bits;
}

std::string_view onnx_type_name(std::int32_t data_type) {
  return onnx_row(data_type).name;
}

bool is_float8(DType dtype) {
  return dtype == DType::kFloat8E4M3Fn || dtype == DType::kFloat8E4M3FnUz ||
         dtype == DType::kFloat8E5M2 || dtype == DType::kFloat8E5M2FnUz;
}

bool onnx_is_floating(std::int32_t data_type) {
  return onnx_row(data_type).floating;
}

bool can_cast_to(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

bool can_cast_from(DType dtype) {
  const bool is_complex_or_pair = onnx_data_type(dtype) == 0 || dtype == DType::kComplex64 ||
                                  dtype == DType::kComplex128 || shares_byte(dtype);
  return is_floating(dtype) && !is_complex_or_pair;
}

}  // namespace onnx_external
