// Decides which items of a distributed checkpoint are listed, and under which names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/dcp/dcp_metadata.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct NamedDcpTensor {
  std::string name;
  std::uint32_t item = 0;  // index into the items
};

struct NamedDcpItems {
  std::vector<NamedDcpTensor> tensors;
  std::vector<OpaqueObject> opaque;  // items that are bytes, not tensors
  std::vector<RefusedTensor> refused;
};

// Builds a tree from the paths of the items, then selects and names the tensors in this tree by the
// rules for torch.save files. `options` and errors are those of name_tensors().
[[nodiscard]] Result<NamedDcpItems> name_dcp_items(const std::vector<DcpItem>& items,
                                                   const OpenOptions& options);

}  // namespace onnx_external
