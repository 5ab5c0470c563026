// Reads and writes the mapping options of a save in its manifest, so that a later comparison of the
// model with a checkpoint uses the same options.
//
// {"unmatched": "skip" | "keep"?, "partial": true?, "prefix": TEXT?,
//  "renames": [[PATTERN, REPLACEMENT, EVERY], ...]?, "inputs": [NAME, ...]?, "keep": [NAME, ...]?,
//  "ignore": [RE, ...]?, "derived": {NAME: KEY, ...}?}    (checkpoint/derivation_json.h)
//
// Options that are not in Mapping::options are not recorded. All functions are pure and may be
// called from any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/mapping.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the JSON object, or "" if none of the recorded options is set.
[[nodiscard]] std::string options_json(const MappingOptions& options);

// Parses the result of options_json(); unknown members are ignored. Fails with kCorrupt for values
// of another type.
[[nodiscard]] Result<MappingOptions> parse_options(const Json& json);

}  // namespace onnx_external
