#include "checkpoint/gguf/gguf_names.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/block_types.h"
#include "checkpoint/gguf/gguf_roles.h"
#include "checkpoint/gguf/gguf_sizes.h"
#include "checkpoint/gguf/role_weights.h"

namespace onnx_external {
namespace {

// Numbers of the config, not weights of transformers' checkpoint.
constexpr std::array<std::string_view, 3> kOfConfig = {"rope_freqs", "rope_factors_long",
                                                       "rope_factors_short"};

tl::unexpected<Error> mismatch(std::string what) {
  return fail(ErrorCode::kMismatch, std::move(what));
}

class Namer {
 public:
  Namer(const GgufArchitecture& architecture, std::span<const GgufTensor> tensors, GgufSizes sizes)
      : of_(architecture),
        tensors_(tensors),
        sizes_(std::move(sizes)),
        made_(architecture, tensors, sizes_) {}

  Result<std::vector<GgufWeight>> name(std::uint64_t tokens) {
    top_.resize(of_.top.size());
    layers_.resize(static_cast<std::size_t>(sizes_.layers()) * of_.layer.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      TRY(place(i));
    }
    for (std::size_t role = 0; role < of_.top.size(); ++role) {
      TRY(add(of_.top[role], top_[role], "", ""));
    }
    if (tokens > sizes_.of('V').value_or(0)) {
      return mismatch(
          fmt::format("the vocabulary has {} tokens, but 'token_embd.weight' has {} rows", tokens,
                      sizes_.of('V').value_or(0)));
    }
    for (std::uint64_t layer = 0; layer < sizes_.layers(); ++layer) {
      TRY_IN(fmt::format("layer {}", layer), add_layer(layer));
    }
    return std::move(made_).finish();
  }

 private:
  // --- identifying stored tensors ----------------------------------------------------------------

  Status place(std::size_t i) {
    static const RE2 kName(
        "(?:blk\\.(0|[1-9]\\d{0,8})\\.)?([a-z_]+)(?:\\.(0|[1-9]\\d{0,8}))?"
        "\\.(weight|bias|scale|input_scale)");
    std::string layer;
    std::string base;
    std::string expert;
    std::string suffix;
    if (!RE2::FullMatch(tensors_[i].name, kName, &layer, &base, &expert, &suffix)) {
      return surplus(i);
    }
    if (std::find(kOfConfig.begin(), kOfConfig.end(), base) != kOfConfig.end() &&
        suffix == "weight" && expert.empty()) {
      return {};
    }
    TRY_ASSIGN(GgufFound* const found, place_of(i, layer, base, !expert.empty()));
    if (!expert.empty()) {
      const auto number = static_cast<std::size_t>(std::stoul(expert));
      if (suffix != "weight" || number >= sizes_.experts()) {
        return surplus(i);
      }
      found->experts.emplace_back(number, i);
    } else if (suffix == "scale") {
      found->factor = i;
    } else if (suffix != "input_scale") {
      (suffix == "weight" ? found->weight : found->bias) = i;
    }
    return {};
  }

  Result<GgufFound*> place_of(std::size_t i, const std::string& layer, std::string base,
                              bool is_expert) {
    const std::span<const GgufRole> roles = layer.empty() ? of_.top : of_.layer;
    base += is_expert ? "_exps" : "";
    const auto role = std::find_if(roles.begin(), roles.end(),
                                   [&](const GgufRole& each) { return each.gguf == base; });
    if (role == roles.end() || (is_expert && role->form != GgufForm::kExperts)) {
      return surplus(i);
    }
    const auto number = static_cast<std::size_t>(role - roles.begin());
    if (layer.empty()) {
      return &top_[number];
    }
    const std::uint64_t at = std::stoul(layer);
    if (at >= sizes_.layers()) {
      return mismatch(fmt::format("{} is in layer {}, but the model has {} layers",
                                  quote(tensors_[i].name), at, sizes_.layers()));
    }
    return &layers_[static_cast<std::size_t>(at) * roles.size() + number];
  }

  [[nodiscard]] tl::unexpected<Error> surplus(std::size_t i) const {
    return mismatch(fmt::format("{} is not a tensor of models with the architecture {}",
                                quote(tensors_[i].name), quote(of_.name)));
  }

  // --- one layer ---------------------------------------------------------------------------------

  Status add_layer(std::uint64_t layer) {
    TRY(sizes_.enter(layer));
    const auto count = of_.layer.size();
    GgufFound* const found = &layers_[static_cast<std::size_t>(layer) * count];
    const std::string prefix = fmt::format("{}{}.", of_.layers, layer);
    const std::string stored = fmt::format("blk.{}.", layer);
    is_fused_ = false;
    for (std::size_t role = 0; role < count; ++role) {
      is_fused_ = is_fused_ || (of_.layer[role].need == GgufNeed::kFused && found[role].weight);
    }
    for (std::size_t role = 0; role < count; ++role) {
      const GgufRole& of = of_.layer[role];
      std::sort(found[role].experts.begin(), found[role].experts.end());
      up_ = of.form == GgufForm::kUp ? &found[role] : up_;
      TRY(like_the_first(of, found[role], layers_[role], stored));
      TRY(add(of, found[role], prefix, stored));
    }
    return {};
  }

  // Layers have the same optional tensors.
  static Status like_the_first(const GgufRole& role, const GgufFound& found, const GgufFound& first,
                               const std::string& stored) {
    for (const auto& [one, other, suffix] : {std::tuple(found.weight, first.weight, "weight"),
                                             std::tuple(found.bias, first.bias, "bias")}) {
      if (one.has_value() != other.has_value() && found.experts.empty() && first.experts.empty()) {
        return mismatch(fmt::format("'{}{}.{}' is {}, unlike the one in layer 0", stored, role.gguf,
                                    suffix, one ? "there" : "missing"));
      }
    }
    return {};
  }

  [[nodiscard]] bool is_needed(const GgufRole& role) const {
    switch (role.need) {
      case GgufNeed::kAlways:
        return true;
      case GgufNeed::kMay:
        return false;
      case GgufNeed::kDense:
        return sizes_.experts() == 0;
      case GgufNeed::kMoe:
        return sizes_.experts() > 0;
      case GgufNeed::kSplit:
        return !is_fused_;
      case GgufNeed::kFused:
        return is_fused_;
    }
    return false;
  }

  // Adds the weights of a role. `stored` is in front of its name in the file, `prefix` in
  // transformers.
  Status add(const GgufRole& role, const GgufFound& found, const std::string& prefix,
             const std::string& stored) {
    const bool is_needed_here = is_needed(role);
    const bool is_there = found.weight || !found.experts.empty();
    const std::string name = stored + std::string(role.gguf);
    if (is_needed_here && !is_there) {
      return mismatch("'" + name + ".weight' is missing");
    }
    if (!is_needed_here && role.need != GgufNeed::kMay && (is_there || found.bias)) {
      return mismatch("'" + name + "' does not fit a model with these expert counts" +
                      std::string(is_fused_ ? " and fused attention" : ""));
    }
    if ((found.bias && (role.bias == GgufBias::kNever || !is_there)) ||
        (found.factor && !is_there)) {
      return mismatch("'" + name + (found.bias ? ".bias" : ".scale") +
                      "' is not a tensor of this architecture");
    }
    if (is_there && !found.bias && role.bias == GgufBias::kAlways) {
      return mismatch("'" + name + ".bias' is missing");
    }
    if (!is_there) {
      return {};
    }
    if (!found.experts.empty()) {
      TRY(check_single_experts(role, found, name));
    } else {
      TRY(check_shape(*found.weight, role.dims));
    }
    if (found.bias) {
      TRY(check_shape(*found.bias, role.form == GgufForm::kNorm
                                       ? role.dims
                                       : role.dims.substr(0, role.dims.size() - 1)));
    }
    return made_.add(role, found, up_, prefix + std::string(role.name));
  }

  // `found.experts` are sorted.
  Status check_single_experts(const GgufRole& role, const GgufFound& found,
                              const std::string& stored) {
    if (found.weight || found.factor) {
      return mismatch("'" + stored +
                      ".weight' is stored twice: for all experts together, and for each expert");
    }
    for (std::size_t expert = 0; expert < sizes_.experts(); ++expert) {
      if (expert >= found.experts.size() || found.experts[expert].first != expert) {
        return mismatch(fmt::format("'{}' has no expert {}", stored, expert));
      }
      TRY(check_shape(found.experts[expert].second, role.dims.substr(1)));
    }
    return {};
  }

  Status check_shape(std::size_t i, std::string_view dims) {
    const GgufTensor& tensor = tensors_[i];
    Shape wanted;
    for (std::size_t axis = 0; axis < dims.size() && axis < tensor.shape.size(); ++axis) {
      const auto has = static_cast<std::uint64_t>(tensor.shape[axis]);
      if (!sizes_.of(dims[axis])) {
        sizes_.learn(dims[axis] == 'G' ? 'F' : dims[axis], dims[axis] == 'G' ? has / 2 : has);
      }
      wanted.push_back(static_cast<std::int64_t>(*sizes_.of(dims[axis])));
    }
    if (dims.size() != tensor.shape.size() || wanted != tensor.shape) {
      return mismatch(fmt::format("{} is {}, but the metadata and the other tensors require {}",
                                  quote(tensor.name), shape_text(tensor.shape),
                                  dims.size() == wanted.size()
                                      ? shape_text(wanted)
                                      : std::to_string(dims.size()) + " dimensions"));
    }
    const BlockType* const type = find_block_type(tensor.type);
    if (type == nullptr || !has_floats(*type)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} is a weight of the type {}, which is not supported",
                              quote(tensor.name), type == nullptr ? "?" : type->name));
    }
    return {};
  }

  const GgufArchitecture& of_;
  std::span<const GgufTensor> tensors_;
  GgufSizes sizes_;
  std::vector<GgufFound> top_;     // by role
  std::vector<GgufFound> layers_;  // by layer and role
  bool is_fused_ = false;          // the attention of this layer
  const GgufFound* up_ = nullptr;  // of this layer, once it is complete
  RoleWeights made_;
};

}  // namespace

Result<std::vector<GgufWeight>> name_gguf_weights(const GgufMetadata& metadata,
                                                  std::span<const GgufTensor> tensors,
                                                  std::uint64_t tokens) {
  if (const std::string other = gguf_other_kind(metadata, tensors.size()); !other.empty()) {
    return unsupported(other);
  }
  const GgufValue* const name = metadata.find("general.architecture");
  if (name == nullptr || name->text() == nullptr) {
    return corrupt(name == nullptr ? "'general.architecture' is missing"
                                   : "'general.architecture' is not a string");
  }
  const GgufArchitecture* const architecture = find_gguf_architecture(*name->text());
  if (architecture == nullptr) {
    return unsupported(
        "the architecture " + quote(*name->text()) +
        " is not supported; use the checkpoint that the file was converted from. Supported are: " +
        gguf_architecture_names());
  }
  TRY_ASSIGN(auto sizes, GgufSizes::of(metadata, architecture->name, tensors.size()));
  return Namer(*architecture, tensors, std::move(sizes)).name(tokens);
}

}  // namespace onnx_external
