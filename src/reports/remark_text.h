// Describes irregularities of external data (DataRemark) as text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "onnx_external/model.h"

namespace onnx_external {

// The stable name used in JSON: "zero-length".
[[nodiscard]] std::string_view remark_name(DataRemark remark);

// Says what the remark means, what other loaders do, and what to do about it.
[[nodiscard]] std::string_view remark_message(DataRemark remark);

// A line for each remark: "warning: 'w' and 2 more: length 0 in external_data: ...".
[[nodiscard]] std::string remarks_text(std::span<const CountedRemark> remarks);

// A line for each that a save leaves out of the model that it writes.
[[nodiscard]] std::string left_out_text(std::span<const CountedRemark> remarks);

}  // namespace onnx_external
