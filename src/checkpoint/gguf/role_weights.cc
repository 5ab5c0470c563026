#include "checkpoint/gguf/role_weights.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/bad_input.h"
#include "base/try.h"

namespace onnx_external {
namespace {

std::string expert_name(const std::string& name, std::uint64_t expert) {
  std::string text = name;
  text.replace(text.find('#'), 1, std::to_string(expert));
  return text + ".weight";
}

}  // namespace

Status RoleWeights::add(const GgufRole& role, const GgufFound& found, const GgufFound* up,
                        const std::string& name) {
  switch (role.form) {
    case GgufForm::kExperts:
      add_experts(found, name);
      return {};
    case GgufForm::kQueryKeyValue:
      return add_split(found, name);
    case GgufForm::kGate:
      add_alternating(found, *up, name);
      return {};
    case GgufForm::kUp:
      return {};
    default:
      return add_one(role, found, name);
  }
}

GgufWeight RoleWeights::whole(std::string name, std::size_t i,
                              std::optional<std::size_t> factor) const {
  GgufWeight weight = whole_gguf_tensor(std::move(name), tensors_[i].shape, i);
  weight.factors = {factor};
  return weight;
}

Result<std::uint64_t> RoleWeights::heads_of(GgufForm form) const {
  if (*sizes_.of('H') % 2 != 0) {
    return corrupt(fmt::format("heads of {} cannot be halved", *sizes_.of('H')));
  }
  return *sizes_.of(form == GgufForm::kQuery ? 'N' : 'L');
}

Status RoleWeights::add_one(const GgufRole& role, const GgufFound& found, const std::string& name) {
  const bool permutes =
      of_.permutes && (role.form == GgufForm::kQuery || role.form == GgufForm::kKey);
  const bool is_bare = role.form == GgufForm::kBare || role.form == GgufForm::kTurned;
  GgufWeight weight = whole(is_bare ? name : name + ".weight", *found.weight, found.factor);
  weight.minus_one = of_.adds_one && role.form == GgufForm::kNorm;
  if (permutes) {
    TRY_ASSIGN(weight.heads, heads_of(role.form));
  }
  if (role.form == GgufForm::kTransposed || role.form == GgufForm::kTurned) {
    weight.turn();
  } else if (role.form == GgufForm::kRow) {
    weight.shape.insert(weight.shape.begin(), 1);
  }
  const std::uint64_t heads = weight.heads;
  weights_.push_back(std::move(weight));
  if (found.bias) {
    GgufWeight bias = whole(name + (is_bare ? "_bias" : ".bias"), *found.bias);
    if (permutes) {
      bias.split_rows();
      bias.heads = heads;
    }
    weights_.push_back(std::move(bias));
  }
  return {};
}

void RoleWeights::add_experts(const GgufFound& found, const std::string& name) {
  for (const auto& [expert, i] : found.experts) {
    weights_.push_back(whole(expert_name(name, expert), i));
  }
  for (std::uint64_t expert = 0; found.weight && expert < sizes_.experts(); ++expert) {
    GgufWeight weight = whole(expert_name(name, expert), *found.weight, found.factor);
    weight.shape.erase(weight.shape.begin());
    weight.rows /= sizes_.experts();
    weight.first_row = expert * weight.rows;
    weights_.push_back(std::move(weight));
  }
}

// The three parts of a tensor whose rows are those of queries, keys and values.
Status RoleWeights::add_split(const GgufFound& found, const std::string& prefix) {
  struct Part {
    std::string_view name;
    char size;
    char heads;
  };
  constexpr std::array kParts = {Part{"q", 'Q', 'N'}, Part{"k", 'K', 'L'}, Part{"v", 'U', '\0'}};
  std::uint64_t first = 0;
  for (const Part& part : kParts) {
    for (const bool is_bias : {false, true}) {
      const auto from = is_bias ? found.bias : found.weight;
      if (!from) {
        continue;
      }
      GgufWeight weight = whole(
          fmt::format("{}self_attn.{}_proj.{}", prefix, part.name, is_bias ? "bias" : "weight"),
          *from, is_bias ? std::nullopt : found.factor);
      if (is_bias) {
        weight.split_rows();
      }
      weight.first_row = first;
      weight.rows = *sizes_.of(part.size);
      weight.shape[0] = static_cast<std::int64_t>(weight.rows);
      if (of_.permutes && part.heads != '\0') {
        TRY_ASSIGN(weight.heads, heads_of(part.heads == 'N' ? GgufForm::kQuery : GgufForm::kKey));
      }
      weights_.push_back(std::move(weight));
    }
    first += *sizes_.of(part.size);
  }
  return {};
}

// gate and up of all experts: their rows alternate.
void RoleWeights::add_alternating(const GgufFound& gate, const GgufFound& up,
                                  const std::string& name) {
  GgufWeight weight = whole(name, *gate.weight, gate.factor);
  weight.from.push_back(*up.weight);
  weight.factors.push_back(up.factor);
  weight.shape[1] *= 2;
  weight.turn();
  weights_.push_back(std::move(weight));
  GgufWeight bias = whole(name + "_bias", *gate.bias);
  bias.from.push_back(*up.bias);
  bias.factors.emplace_back();
  bias.shape[1] *= 2;
  bias.split_rows();
  weights_.push_back(std::move(bias));
}

}  // namespace onnx_external
