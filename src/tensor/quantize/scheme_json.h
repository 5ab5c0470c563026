// Reads and writes quantization schemes in manifests and reports.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/quantize.h"
#include "onnx_external/result.h"

namespace onnx_external {

// {"bits": 4, "block": 64, "zero_points": true, "steps": 5, "scales": "float32"}; of
// kept codes with "terms": false or true in the place of the steps.
[[nodiscard]] std::string scheme_json(const Scheme& scheme);

// kCorrupt for anything that is not such an object, unknown members included, and for what
// check_scheme() rejects.
[[nodiscard]] Result<Scheme> parse_scheme(const Json& json);

}  // namespace onnx_external
