// Checks the external_data entries of a tensor for the verifier, and reports errors as findings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/external_data.h"
#include "onnx/tensor_list.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// Shortens a name for a finding, because names in files may have millions of bytes, and each
// finding has a copy of its own.
[[nodiscard]] std::string name_in_finding(std::string_view name);

// Reads the entry of an external tensor, and appends what is wrong with it to `findings`. Returns
// nullopt if the entry has no range that could be read.
[[nodiscard]] std::optional<ExternalEntry> read_entry(const ListedTensor& tensor,
                                                      std::vector<Finding>& findings);

}  // namespace onnx_external
