// The classes of transformers: what their pickles hold, and the names that come out.
// Sources: transformers cache_utils.py (both generations: parallel lists, then a list of layers),
// modeling_outputs.py, utils/generic.py (ModelOutput), integrations/executorch.py (the order in
// which torch.export sees a DynamicCache).
#include <array>
#include <utility>

#include "checkpoint/naming/known_classes.h"
#include "onnx_external/class_flattening.h"

namespace onnx_external {
namespace {

using Parts = std::vector<FlattenedPart>;

constexpr std::array kKeyValueCaches = {
    "transformers.cache_utils.DynamicCache",
    "transformers.cache_utils.StaticCache",
    "transformers.cache_utils.SlidingWindowCache",
};
constexpr const char* kEncoderDecoderCache = "transformers.cache_utils.EncoderDecoderCache";
constexpr std::array kMambaCaches = {
    "transformers.cache_utils.MambaCache",
    "transformers.models.mamba.modeling_mamba.MambaCache",
};
constexpr std::array kBatches = {
    "transformers.tokenization_utils_base.BatchEncoding",
    "transformers.feature_extraction_utils.BatchFeature",
    "transformers.image_processing_base.BatchFeature",
};
constexpr const char* kModelOutputs = "transformers.modeling_outputs.*";

void add_attribute(const PickledValue& object, const char* name, Parts& parts) {
  if (const auto value = object.attribute(name)) {
    parts.push_back({name, *value});
  }
}

// Layers that were never filled contain None. Like transformers, skips them and numbers the others
// without gaps.
void add_of_layers(const std::vector<PickledValue>& layers, const char* attribute,
                   const std::string& list, Parts& parts) {
  std::size_t index = 0;
  for (const PickledValue& layer : layers) {
    const auto value = layer.attribute(attribute);
    if (value && value->kind() != PickledKind::kNone) {
      parts.push_back({list + "." + std::to_string(index++), *value});
    }
  }
}

Result<Parts> flatten_key_value_cache(const PickledValue& cache) {
  Parts parts;
  if (const auto layers = cache.attribute("layers")) {
    const std::vector<PickledValue> each = layers->elements();
    add_of_layers(each, "keys", "key_cache", parts);
    add_of_layers(each, "values", "value_cache", parts);
    return parts;
  }
  add_attribute(cache, "key_cache", parts);
  add_attribute(cache, "value_cache", parts);
  if (parts.size() != 2) {
    return fail(ErrorCode::kUnsupported,
                "has neither layers nor key_cache and value_cache; register a flattening function "
                "for its class");
  }
  return parts;
}

Result<Parts> flatten_encoder_decoder_cache(const PickledValue& cache) {
  Parts parts;
  add_attribute(cache, "self_attention_cache", parts);
  add_attribute(cache, "cross_attention_cache", parts);
  return parts;
}

Result<Parts> flatten_mamba_cache(const PickledValue& cache) {
  Parts parts;
  add_attribute(cache, "conv_states", parts);
  add_attribute(cache, "ssm_states", parts);
  return parts;
}

// A UserDict: its items are in `data`.
Result<Parts> flatten_batch(const PickledValue& batch) {
  Parts parts;
  if (const auto data = batch.attribute("data")) {
    for (auto& [name, value] : data->items()) {
      parts.push_back({std::move(name), value});
    }
  }
  return parts;
}

// An OrderedDict subclass: what is not None was set as an item.
Result<Parts> flatten_model_output(const PickledValue& output) {
  Parts parts;
  for (auto& [name, value] : output.items()) {
    parts.push_back({std::move(name), value});
  }
  return parts;
}

}  // namespace

void ClassFlattening::register_cache_classes() {
  for (const char* name : kKeyValueCaches) {
    register_class_flattening(name, flatten_key_value_cache);
  }
  register_class_flattening(kEncoderDecoderCache, flatten_encoder_decoder_cache);
  for (const char* name : kMambaCaches) {
    register_class_flattening(name, flatten_mamba_cache);
  }
  for (const char* name : kBatches) {
    register_class_flattening(name, flatten_batch);
  }
  register_class_flattening(kModelOutputs, flatten_model_output);
}

void ClassFlattening::unregister_cache_classes() {
  for (const char* name : kKeyValueCaches) {
    (void)unregister_class_flattening(name);
  }
  (void)unregister_class_flattening(kEncoderDecoderCache);
  for (const char* name : kMambaCaches) {
    (void)unregister_class_flattening(name);
  }
  for (const char* name : kBatches) {
    (void)unregister_class_flattening(name);
  }
  (void)unregister_class_flattening(kModelOutputs);
}

const ClassFlattening& known_classes() {
  static const ClassFlattening classes = [] {
    ClassFlattening made;
    made.register_cache_classes();
    return made;
  }();
  return classes;
}

}  // namespace onnx_external
