// Reads the settings of a peft adapter from its adapter_config.json.
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

// kUnsupported unless the adapter is a plain LoRA: one whose products of two matrices are added to
// weights, and nothing else.
[[nodiscard]] Status check_adapter_settings(const Json& config);

// The factor of the product of a module: alpha / rank, or alpha / sqrt(rank). kCorrupt if the
// settings have no such number.
[[nodiscard]] Result<float> adapter_scale(const std::string& module, std::uint64_t rank,
                                          const Json& config);

// True for a value that is there and is not null, false or empty.
[[nodiscard]] bool is_set_in_adapter(const Json* value);

}  // namespace onnx_external
