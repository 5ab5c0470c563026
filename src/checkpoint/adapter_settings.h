// Reads the settings of a LoRA adapter from the adapter_config.json that peft writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::string_view kMergeByPeft =
    "merge it with peft: PeftModel.from_pretrained(base, ADAPTER).merge_and_unload(), and save the "
    "result";

// Fails with kUnsupported if the adapter is not a plain LoRA, which only adds products of two
// matrices to weights.
[[nodiscard]] Status check_adapter_settings(const Json& config);

// Returns the factor by which the product of a module's matrices is multiplied: alpha / rank, or
// alpha / sqrt(rank) if the config has use_rslora. Fails with kCorrupt if alpha is not a number.
[[nodiscard]] Result<float> adapter_scale(const std::string& module, std::uint64_t rank,
                                          const Json& config);

// Returns whether a setting is present and neither null, false nor empty.
[[nodiscard]] bool is_set_in_adapter(const Json* value);

}  // namespace onnx_external
