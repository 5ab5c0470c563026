// Parses the JSON next to the weights in a PT2 archive, which says in which record each tensor is
// stored, and in which form.
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
  std::string record;  // plain name, in the folder for its kind of payload
  bool pickled = false;
  TensorDeclaration tensor;  // unset if pickled; has no storage
  std::string refusal;       // why the tensor cannot be read; "" if it can
};

// Returns the payloads in the order of the file. kCorrupt if the text is not a payload config.
[[nodiscard]] Result<std::vector<Payload>> parse_payload_config(std::string_view text);

}  // namespace onnx_external
