// Parses the JSON file in a PT2 archive that states the record and the form in which each tensor is
// stored.
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
  std::string name;    // name of the tensor
  std::string record;  // name of the record in the folder for this kind of payload
  bool pickled = false;
  TensorDeclaration tensor;  // unset if pickled; has no storage
  std::string refusal;       // the reason why the tensor cannot be read; "" if it can
};

// Returns the payloads in the order of the file. Fails with kCorrupt if the text is not a payload
// config.
[[nodiscard]] Result<std::vector<Payload>> parse_payload_config(std::string_view text);

}  // namespace onnx_external
