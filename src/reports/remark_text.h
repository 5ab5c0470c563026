// Describes irregularities of external data (DataRemark) as text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "onnx_external/model.h"

namespace onnx_external {

// Returns the stable name used in JSON: "zero-length".
[[nodiscard]] std::string_view remark_name(DataRemark remark);

// Explains what the remark means, what other loaders do, and how to proceed.
[[nodiscard]] std::string_view remark_message(DataRemark remark);

// Returns a line for each remark: "warning: 'w' and 2 more: length 0 in external_data: ...".
[[nodiscard]] std::string remarks_text(std::span<const CountedRemark> remarks);

// Returns a line for each remark about entries that a save leaves out of the written model.
[[nodiscard]] std::string left_out_text(std::span<const CountedRemark> remarks);

}  // namespace onnx_external
