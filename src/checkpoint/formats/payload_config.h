// Parses the JSON beside the weights of a PT2 archive, which says which record holds which tensor,
// and in which form.
//
// Source: torch/_export/serde/schema.py (PayloadConfig, PayloadMeta, TensorMeta, ScalarType).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct Payload {
  std::string name;    // of the tensor
  std::string record;  // plain name, in the folder of its kind
  bool pickled = false;
  TensorDeclaration tensor;  // unset if pickled; has no storage
  std::string refusal;       // why it cannot be read; "" if it can
};

// The payloads in the order of the file. kCorrupt if the text is not a payload config.
[[nodiscard]] Result<std::vector<Payload>> parse_payload_config(std::string_view text);

}  // namespace onnx_external
