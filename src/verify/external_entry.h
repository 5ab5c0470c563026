// The entry of an external tensor, checked as by the strictest loaders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx/tensor_list.h"
#include "onnx_external/verify.h"

namespace onnx_external {

struct ExternalEntry {
  std::string location;  // safe to open beneath the model's folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // bytes of type and dims
  bool states_length = false;
  std::string sha1;  // "checksum" in lower case; empty = not stated
};

// A name cut for a finding, because names in files may have millions of bytes and each finding has
// its own copy.
[[nodiscard]] std::string name_in_finding(std::string_view name);

// Reads the entry of an external tensor and appends what is wrong with it to `findings`. Returns
// nullopt if there is no range that could be read.
[[nodiscard]] std::optional<ExternalEntry> read_entry(const ListedTensor& tensor,
                                                      std::vector<Finding>& findings);

}  // namespace onnx_external
