// Reads the external_data entries of a tensor strictly, and writes them in their plainest form.
//
// Source of the rules: docs/ExternalData.md of the ONNX specification, and the keys that ONNX
// Runtime accepts (any other makes it refuse the model).
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "onnx/tensor_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Parses a decimal number without sign, space or prefix, at most 2^63-1. Nothing for other text.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text);

// Reads the entries of an EXTERNAL tensor: type, dims, location, offset and length. Accepts
// location, offset, length and checksum, each at most once. kCorrupt.
[[nodiscard]] Result<ExternalTensor> read_external_entries(const onnx::TensorProto& tensor);

// Makes `tensor` external: writes location, offset, length (and checksum) and removes whatever
// data or entries it had.
void write_external_entries(const ExternalRef& ref, onnx::TensorProto& tensor);

// Removes data in every field that can hold some, and all external_data entries.
void clear_tensor_data(onnx::TensorProto& tensor);

// True if the tensor's bytes are recorded, inline or external, or if it has none.
[[nodiscard]] bool has_data(const onnx::TensorProto& tensor);

}  // namespace onnx_external
