#include "checkpoint/quantized/rotations.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/bad_input.h"
#include "base/text.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> rotated(const QuantSettings& settings, const std::string& what) {
  return unsupported(settings.place + ": " + what +
                     " rotates the inputs of modules at run time, which a graph of the float model "
                     "does not do; use a checkpoint without rotations");
}

// Returns whether a transform of compressed-tensors is applied to what a module reads or returns,
// and not only to weights.
bool is_online(const Json& scheme) {
  const JsonArray* const places = scheme.get<JsonArray>("apply");
  return places == nullptr || std::any_of(places->begin(), places->end(), [](const Json& place) {
           const std::string* const location = place.get<std::string>("location");
           return location == nullptr || !location->starts_with("weight");
         });
}

Status refuse_transforms(const QuantSettings& settings) {
  const Json* const transforms = settings.config.find("transform_config");
  const JsonObject* const schemes =
      transforms == nullptr ? nullptr : transforms->get<JsonObject>("config_groups");
  for (const auto& [name, scheme] : schemes == nullptr ? JsonObject() : *schemes) {
    if (is_online(scheme)) {
      return rotated(settings, "transform_config: " + quote(name));
    }
  }
  return {};
}

// In the names of QuaRot and SpinQuant, R1 and R2 are fused into weights, R3 cancels out between
// queries and keys, and R4 is applied to the inputs of the last layer of an MLP.
bool needs_inputs_rotated(const Json& rotation) {
  const bool* const r4 = rotation.get<bool>("r4");
  const bool* const r1 = rotation.get<bool>("online_r1_rotation");
  return r4 == nullptr || *r4 || (r1 != nullptr && *r1);
}

}  // namespace

Status refuse_rotations(const QuantSettings& settings) {
  if (const std::string kind = settings.text("rotation"); !kind.empty()) {  // GPTQModel
    return rotated(settings, "rotation: " + quote(kind));
  }
  for (const std::string_view key : {"rotation_config", "spinquant_config"}) {  // AutoRound
    const Json* const own = settings.config.find(key);
    const bool is_given = own != nullptr && own->object() != nullptr && !own->object()->empty();
    if (is_given && needs_inputs_rotated(*own)) {
      return rotated(settings, std::string(key));
    }
  }
  const JsonArray* const steps = settings.config.get<JsonArray>("algo_config");  // Quark
  for (const Json& step : steps == nullptr ? JsonArray() : *steps) {
    const std::string* const name = step.get<std::string>("name");
    if (name != nullptr && (*name == "rotation" || *name == "quarot") &&
        needs_inputs_rotated(step)) {
      return rotated(settings, "algo_config: " + quote(*name));
    }
  }
  return refuse_transforms(settings);
}

}  // namespace onnx_external
