#include "save/packed_json.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/bad_input.h"
#include "base/try.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/scheme_json.h"

namespace onnx_external {
namespace {

constexpr std::array kParts{MatrixPart::kCodes, MatrixPart::kScales, MatrixPart::kZeroPoints};

Result<std::uint64_t> size_member(const Json& object, std::string_view name) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const auto* const number = object.get<std::uint64_t>(name);
  return number != nullptr && *number > 0 && *number <= kMost
             ? Result<std::uint64_t>(*number)
             : corrupt(fmt::format("\"{}\" is missing or not a size", name));
}

const PackedPart& layout_of(const PackedLayout& layout, MatrixPart part) {
  return part == MatrixPart::kCodes    ? layout.codes
         : part == MatrixPart::kScales ? layout.scales
                                       : layout.zero_points;
}

}  // namespace

std::string_view part_name(MatrixPart part) {
  constexpr std::array<std::string_view, kMatrixParts> kNames{"codes", "scales", "zero_points"};
  return kNames[static_cast<std::size_t>(part)];
}

std::string packed_json(const PackedTensor& packed) {
  return fmt::format(R"({{"part": "{}", "rows": {}, "columns": {}, "scheme": {}}})",
                     part_name(packed.part), packed.rows, packed.columns,
                     scheme_json(packed.scheme));
}

Result<PackedTensor> parse_packed(const Json& json) {
  const auto* const name = json.get<std::string>("part");
  const Json* const scheme = json.find("scheme");
  if (name == nullptr || scheme == nullptr) {
    return corrupt("\"part\" or \"scheme\" is missing");
  }
  PackedTensor packed;
  TRY_ASSIGN(packed.rows, size_member(json, "rows"));
  TRY_ASSIGN(packed.columns, size_member(json, "columns"));
  if (packed.columns > static_cast<std::uint64_t>(kMaxQuantizedColumns)) {
    return corrupt(fmt::format("\"columns\" is more than {}", kMaxQuantizedColumns));
  }
  TRY_ASSIGN(packed.scheme, parse_scheme(*scheme));
  TRY_ASSIGN(const auto layout, packed_layout(packed.scheme, static_cast<std::int64_t>(packed.rows),
                                              static_cast<std::int64_t>(packed.columns)));
  for (const MatrixPart part : kParts) {
    if (*name == part_name(part) && layout_of(layout, part).bytes > 0) {
      packed.part = part;
      return packed;
    }
  }
  return corrupt("\"part\" is not a part of such a matrix");
}

std::uint64_t packed_bytes(const PackedTensor& packed) {
  const auto layout = packed_layout(packed.scheme, static_cast<std::int64_t>(packed.rows),
                                    static_cast<std::int64_t>(packed.columns));
  return layout ? layout_of(*layout, packed.part).bytes : 0;
}

bool is_packed_type(const PackedTensor& packed, std::int32_t data_type) {
  const bool is_third = packed.part == MatrixPart::kZeroPoints;
  if (packed.part == MatrixPart::kScales || (is_third && packed.scheme.terms)) {
    return data_type == onnx_data_type(packed.scheme.scales);
  }
  return data_type == onnx_data_type(DType::kUInt8) ||
         (packed.scheme.bits == 4 && data_type == onnx_data_type(DType::kUInt4));
}

std::optional<DType> packing_cast(DType dtype) {
  const bool is_read =
      dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_read ? std::nullopt : std::optional(DType::kFloat32);
}

}  // namespace onnx_external
