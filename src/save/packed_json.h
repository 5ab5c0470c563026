// Reads and writes the parts of quantized matrices (codes, scales, zero points) in manifests, and
// computes the size and type of a part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Formats a part: {"part": "codes", "rows": 8, "columns": 64, "scheme": {...}}
// (tensor/quantize/scheme_json.h).
[[nodiscard]] std::string packed_json(const PackedTensor& packed);
// Parses the result of packed_json(). Fails with kCorrupt for any other JSON, for a matrix without
// elements, and for a matrix whose parts have too many bytes.
[[nodiscard]] Result<PackedTensor> parse_packed(const Json& json);

// Returns "codes", "scales" or "zero_points".
[[nodiscard]] std::string_view part_name(MatrixPart part);

// Returns the number of bytes of the part. Requires: packed_layout() succeeds for the scheme, rows
// and columns.
[[nodiscard]] std::uint64_t packed_bytes(const PackedTensor& packed);
// Returns whether a tensor of this TensorProto.DataType can hold the part. Codes and zero points of
// 4 bits may have the type uint4, or uint8 with two values per byte.
[[nodiscard]] bool is_packed_type(const PackedTensor& packed, std::int32_t data_type);
// Returns the type to which values of type `dtype` are converted before quantization, or nullopt if
// they are quantized directly.
[[nodiscard]] std::optional<DType> packing_cast(DType dtype);

}  // namespace onnx_external
