// Looks up the quantization settings of a single module in those of its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quantized/quant_settings.h"

namespace onnx_external {

// Returns the number under `key` for the module: from GPTQModel's "dynamic", AutoRound's
// "extra_config", MLX's object with the module's name, or the config itself. Nullopt if none of
// these has the key.
[[nodiscard]] std::optional<std::int64_t> number_for(const QuantSettings& settings,
                                                     const std::string& module,
                                                     std::string_view key);

// Returns whether the pattern, a Python regular expression, matches a prefix of the text. Nullopt
// if the pattern uses features that no finite automaton supports, such as lookahead.
[[nodiscard]] std::optional<bool> matches_start(std::string_view pattern, std::string_view text);

// Returns the same for a match anywhere in the text.
[[nodiscard]] std::optional<bool> is_found_in(std::string_view pattern, std::string_view text);

// Returns the "weights" objects of compressed-tensors' "config_groups" that may describe the
// module: those whose targets name the module; if there are none, those whose targets name a class
// of modules.
[[nodiscard]] std::vector<const Json*> weight_args(const QuantSettings& settings,
                                                   const std::string& module);

}  // namespace onnx_external
