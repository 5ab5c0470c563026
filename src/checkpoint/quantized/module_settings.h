// Looks up the quantization settings of a single module in the settings of its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quantized/quant_settings.h"

namespace onnx_external {

// Returns the number under `key` that applies to the module. The key is looked up in this
// order: in Olive's "overrides", in GPTQModel's "dynamic", in AutoRound's "extra_config", in MLX's
// object with the module's name, and in the config itself. Returns nullopt if none of these has the
// key.
[[nodiscard]] std::optional<std::int64_t> number_for(const QuantSettings& settings,
                                                     const std::string& module,
                                                     std::string_view key);

// Returns whether the pattern, a Python regular expression, matches a prefix of the text. Nullopt
// if the pattern uses features that no finite automaton supports, such as lookahead.
[[nodiscard]] std::optional<bool> matches_start(std::string_view pattern, std::string_view text);

// Returns whether the pattern matches anywhere in the text. Nullopt as for matches_start().
[[nodiscard]] std::optional<bool> is_found_in(std::string_view pattern, std::string_view text);

// Returns the "weights" objects of compressed-tensors' "config_groups" that may describe the
// module. These are the objects whose targets name the module or, if there are none, the objects
// whose targets name a class of modules.
[[nodiscard]] std::vector<const Json*> weight_args(const QuantSettings& settings,
                                                   const std::string& module);

// Returns Quark's settings for the weight of the module: those of the first pattern in
// "layer_quant_config" that matches it, or those for linear layers, or those for all. Returns null
// if there are none.
[[nodiscard]] const Json* quark_weight(const QuantSettings& settings, const std::string& module);

}  // namespace onnx_external
