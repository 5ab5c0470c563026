#include "mapping/buffer_names.h"

#include <algorithm>
#include <array>

namespace onnx_external {
namespace {

constexpr std::array<std::string_view, 14> kBakedBuffers = {
    "cos_cached",
    "sin_cached",
    "cos_cache",
    "sin_cache",
    "freqs_cis",
    "position_ids",
    "token_type_ids",
    "masked_bias",
    "causal_mask",
    "relative_position_index",
    "relative_coords_table",
    "rel_pos_index",
    "num_batches_tracked",
    "_float_tensor",
};

constexpr std::array<std::string_view, 2> kTrainingParameters = {"mask_token", "masked_spec_embed"};

// The names that the libraries peft, diffusers, kohya and lycoris use.
constexpr std::array<std::string_view, 20> kAdapterComponents = {
    "lora_A",
    "lora_B",
    "lora_embedding_A",
    "lora_embedding_B",
    "lora_magnitude_vector",
    "lora_down",
    "lora_up",
    "ia3_l",
    "hada_w1_a",
    "hada_w1_b",
    "hada_w2_a",
    "hada_w2_b",
    "hada_t1",
    "hada_t2",
    "lokr_w1",
    "lokr_w2",
    "oft_r",
    "oft_blocks",
    "vera_lambda_b",
    "vera_lambda_d",
};

bool has_component(std::string_view name, std::string_view component) {
  for (std::size_t at = name.find(component); at != std::string_view::npos;
       at = name.find(component, at + 1)) {
    const std::size_t end = at + component.size();
    const bool starts = at == 0 || name[at - 1] == '.' || name[at - 1] == '_';
    if (starts && (end == name.size() || name[end] == '.')) {
      return true;
    }
  }
  return false;
}

std::string_view last_component(std::string_view name) {
  return name.substr(name.find_last_of("./") + 1);
}

// GPT-2's causal mask is called attn.bias. Its shape, [1, 1, n, n], distinguishes it from a real
// bias.
bool is_square_mask(std::string_view name, const Shape& shape) {
  return name.ends_with("attn.bias") && shape.size() == 4 && shape[0] == 1 && shape[1] == 1 &&
         shape[2] == shape[3];
}

}  // namespace

bool is_baked_buffer(std::string_view name, const Shape& shape) {
  const std::string_view last = last_component(name);
  return std::find(kBakedBuffers.begin(), kBakedBuffers.end(), last) != kBakedBuffers.end() ||
         last == "inv_freq" || last.ends_with("_inv_freq") || is_square_mask(name, shape);
}

bool is_training_parameter(std::string_view name) {
  const std::string_view last = last_component(name);
  return std::find(kTrainingParameters.begin(), kTrainingParameters.end(), last) !=
         kTrainingParameters.end();
}

bool is_counter_name(std::string_view name) {
  constexpr std::array<std::string_view, 11> kCounters = {
      "num_batches_tracked", "step",       "steps",  "global_step",
      "n_averaged",          "epoch",      "epochs", "num_updates",
      "iteration",           "iterations", "counter"};
  return std::find(kCounters.begin(), kCounters.end(), last_component(name)) != kCounters.end();
}

std::string_view adapter_component(std::string_view name) {
  const auto found =
      std::find_if(kAdapterComponents.begin(), kAdapterComponents.end(),
                   [&](std::string_view component) { return has_component(name, component); });
  return found != kAdapterComponents.end() ? *found : std::string_view();
}

}  // namespace onnx_external
