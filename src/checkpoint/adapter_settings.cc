#include "checkpoint/adapter_settings.h"

#include <re2/re2.h>

#include <array>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace onnx_external {
namespace {

// With these an adapter is more than a product of two matrices.
constexpr std::array<std::string_view, 11> kUnmerged = {
    "use_dora",          "lora_bias",          "layer_replication", "trainable_token_indices",
    "target_parameters", "use_bdlora",         "arrow_config",      "alora_invocation_tokens",
    "velora_config",     "kappa_tuner_config", "corda_config"};

std::optional<double> number(const Json* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* const whole = value->uint()) {
    return static_cast<double>(*whole);
  }
  if (const auto* const negative = std::get_if<std::int64_t>(&value->value)) {
    return static_cast<double>(*negative);
  }
  const auto* const real = std::get_if<double>(&value->value);
  return real == nullptr ? std::nullopt : std::optional(*real);
}

}  // namespace

bool is_set_in_adapter(const Json* value) {
  if (value == nullptr || std::holds_alternative<std::nullptr_t>(value->value)) {
    return false;
  }
  if (const bool* const flag = std::get_if<bool>(&value->value)) {
    return *flag;
  }
  return !(value->array() != nullptr && value->array()->empty()) &&
         !(value->object() != nullptr && value->object()->empty());
}

Status check_adapter_settings(const Json& config) {
  const std::string* const kind = config.get<std::string>("peft_type");
  if (kind == nullptr || *kind != "LORA") {
    return fail(ErrorCode::kUnsupported,
                "an adapter of the type " + (kind == nullptr ? "?" : quote(*kind)) +
                    ", which onnx-external cannot merge; " + std::string(kMergeByPeft));
  }
  for (const std::string_view name : kUnmerged) {
    if (is_set_in_adapter(config.find(name))) {
      return fail(ErrorCode::kUnsupported, std::string(name) +
                                               " is set, which onnx-external cannot merge; " +
                                               std::string(kMergeByPeft));
    }
  }
  const std::string* const bias = config.get<std::string>("bias");
  if (bias != nullptr && *bias != "none") {
    return fail(ErrorCode::kUnsupported, "bias is " + quote(*bias) +
                                             ", which onnx-external cannot merge; " +
                                             std::string(kMergeByPeft));
  }
  return {};
}

Result<float> adapter_scale(const std::string& module, std::uint64_t rank, const Json& config) {
  constexpr double kUsualAlpha = 8;
  const Json* alpha = config.find("lora_alpha");
  if (const auto* const patterns = config.get<JsonObject>("alpha_pattern")) {
    for (const auto& [pattern, value] : *patterns) {
      const RE2 expression("(?:.*\\.)?(?:" + pattern + ")", RE2::Quiet);
      if (expression.ok() && RE2::FullMatch(module, expression)) {
        alpha = &value;
        break;
      }
    }
  }
  const auto given = alpha == nullptr ? std::optional(kUsualAlpha) : number(alpha);
  if (!given || rank == 0) {
    return fail(ErrorCode::kCorrupt, "lora_alpha of " + quote(module) + " is not a number");
  }
  const auto divisor = static_cast<double>(rank);
  return static_cast<float>(
      *given / (is_set_in_adapter(config.find("use_rslora")) ? std::sqrt(divisor) : divisor));
}

}  // namespace onnx_external
