// Reads the external_data entries of a tensor for the verifier, and reports errors in them as
// findings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/external_data.h"
#include "onnx/tensor_list.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// Shortens a name for a finding. Names in files may have millions of bytes, and each finding has
// its own copy.
[[nodiscard]] std::string name_in_finding(std::string_view name);

// Reads the entry of an external tensor, and appends its errors to `findings`. Returns nullopt if
// the entry has no readable range.
[[nodiscard]] std::optional<ExternalEntry> read_entry(const ListedTensor& tensor,
                                                      std::vector<Finding>& findings);

}  // namespace onnx_external
