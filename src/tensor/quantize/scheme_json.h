// Converts quantization schemes to and from the JSON in manifests and reports.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/quantize.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Formats a scheme: {"bits": 4, "block": 64, "zero_points": true, "steps": 5, "scales": "float32"}.
// For kept codes, the member "terms" (true or false) replaces "steps".
[[nodiscard]] std::string scheme_json(const Scheme& scheme);

// Parses the result of scheme_json(). Fails with kCorrupt for any other JSON, for unknown members,
// and for schemes that check_scheme() rejects.
[[nodiscard]] Result<Scheme> parse_scheme(const Json& json);

}  // namespace onnx_external
