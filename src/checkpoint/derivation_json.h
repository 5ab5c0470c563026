// Parses and formats the definitions of derived tensors, for map files and manifests. A derived
// tensor is computed from other tensors of the checkpoint, for example by concatenating them.
//
// A definition (KEY) is "key", {"key": "key", "recipe": [...]?}, or {"concat" or "stack": [KEY,
// ...], "dim": 0, "recipe": [...]?}.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "onnx_external/derived.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The nesting limit for JSON documents with such definitions. Each level of a definition is an
// object and a list, so it adds 2 levels.
inline constexpr std::size_t kMaxDerivedJsonDepth = 2 * kMaxDerivedDepth + 10;

// Parses one KEY. Fails with kCorrupt for JSON of any other form, an unknown member, more than
// kMaxDerivedDepth levels, or a cast.
[[nodiscard]] Result<Derivation> parse_derivation(const Json& key);

// Parses {NAME: KEY, ...}. Errors as for parse_derivation(); the message names the tensor.
[[nodiscard]] Result<std::vector<DerivedTensor>> parse_derived(const Json& json);

[[nodiscard]] std::string derivation_json(const Derivation& derivation);
// Formats one definition per line. Each line begins with `line_start`.
[[nodiscard]] std::string derived_json(std::span<const DerivedTensor> derived,
                                       const std::string& line_start);

}  // namespace onnx_external
