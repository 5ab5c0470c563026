// Reads and writes the mapping options of a save in its manifest, so that a comparison of the model
// with a checkpoint maps with the same options.
//
// {"unmatched": "skip" | "keep"?, "partial": true?, "prefix": TEXT?,
//  "renames": [[PATTERN, REPLACEMENT, EVERY], ...]?, "inputs": [NAME, ...]?, "keep": [NAME, ...]?,
//  "ignore": [RE, ...]?, "derived": {NAME: KEY, ...}?}    (checkpoint/derivation_json.h)
//
// Options that Mapping::options leaves out are not recorded. Plain values; safe from any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/mapping.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The JSON object; empty text when no option is set that is recorded.
[[nodiscard]] std::string options_json(const MappingOptions& options);

// Reads what options_json() writes; members that it does not know are ignored. kCorrupt for values
// of another kind.
[[nodiscard]] Result<MappingOptions> parse_options(const Json& json);

}  // namespace onnx_external
