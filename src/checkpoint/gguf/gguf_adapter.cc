#include "checkpoint/gguf/gguf_adapter.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/foreign_format.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/gguf_names.h"
#include "checkpoint/gguf/gguf_parts.h"
#include "checkpoint/gguf/gguf_roles.h"
#include "checkpoint/gguf/gguf_tensors.h"

namespace onnx_external {
namespace {

// A matrix of an adapter: "blk.0.attn_q.weight.lora_b".
struct LoraName {
  std::string layer;  // empty for a tensor of no layer
  std::string base;
  bool is_b = false;
};

std::optional<LoraName> lora_name(const std::string& name) {
  static const RE2 kName("(?:blk\\.(0|[1-9]\\d{0,8})\\.)?([a-z_]+)\\.weight\\.lora_([ab])");
  LoraName found;
  std::string side;
  if (!RE2::FullMatch(name, kName, &found.layer, &found.base, &side)) {
    return std::nullopt;
  }
  found.is_b = side == "b";
  return found;
}

class AdapterNamer {
 public:
  AdapterNamer(const GgufArchitecture& of, const std::optional<GgufHeads>& heads)
      : of_(of), heads_(heads) {}

  Result<GgufWeight> name(const GgufTensor& tensor, std::size_t i) const {
    const auto lora = lora_name(tensor.name);
    const auto& roles = lora && lora->layer.empty() ? of_.top : of_.layer;
    const auto role = std::find_if(roles.begin(), roles.end(), [&](const GgufRole& each) {
      return lora && each.gguf == lora->base;
    });
    const bool is_embedding = lora && lora->base == "token_embd";
    if (role == roles.end() || tensor.shape.size() != 2 || !is_merged(role->form)) {
      return unsupported("is not a matrix of a plain LoRA");
    }
    GgufWeight weight = whole_gguf_tensor("base_model.model.", tensor.shape, i);
    if (!lora->layer.empty()) {
      weight.name += fmt::format("{}{}.", of_.layers, std::stoul(lora->layer));
    }
    weight.name += fmt::format("{}.lora_{}{}", role->name, is_embedding ? "embedding_" : "",
                               lora->is_b ? "B" : "A");
    if (!is_embedding) {
      weight.name += ".weight";
    } else if (!lora->is_b) {
      weight.turn();
    }
    if (lora->is_b && of_.permutes) {
      TRY_ASSIGN(weight.heads, heads_of(*role, weight.rows));
    }
    return weight;
  }

 private:
  static bool is_merged(GgufForm form) {
    return form == GgufForm::kSame || form == GgufForm::kQuery || form == GgufForm::kKey ||
           form == GgufForm::kTransposed;
  }

  Result<std::uint64_t> heads_of(const GgufRole& role, std::uint64_t rows) const {
    if (role.form != GgufForm::kQuery && role.form != GgufForm::kKey) {
      return std::uint64_t{0};
    }
    if (!heads_) {
      return unsupported(
          "the order of its rows depends on the number of heads in its base, which is not known; "
          "pass the base as GGUF, or its folder with config.json");
    }
    const std::uint64_t heads = role.form == GgufForm::kQuery ? heads_->queries : heads_->keys;
    if (heads == 0 || rows % heads != 0 || rows / heads % 2 != 0) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("has {} rows, which do not fit {} heads", rows, heads));
    }
    return heads;
  }

  const GgufArchitecture& of_;
  const std::optional<GgufHeads>& heads_;
};

Result<float> alpha_of(const GgufMetadata& metadata) {
  const GgufValue* const value = metadata.find("adapter.lora.alpha");
  const bool is_number = value != nullptr && value->is_float() && !value->is_array;
  const double alpha = is_number ? value->real() : 0;
  if (metadata.text("adapter.type") != "lora" || !std::isfinite(alpha) || alpha == 0) {
    return unsupported("is not a LoRA whose 'adapter.lora.alpha' is a number other than 0");
  }
  return static_cast<float>(alpha);
}

// The metadata of a GGUF file without its long arrays.
std::optional<GgufMetadata> short_metadata(const std::filesystem::path& path) {
  auto file = SourceFile::open(path);
  const auto head = file ? head_of(**file) : Result<std::string>("");
  if (!head || !head->starts_with("GGUF")) {
    return std::nullopt;
  }
  auto read = read_gguf_file(*std::move(file), GgufArrays::kShort);
  return read ? std::optional(std::move(read->metadata)) : std::nullopt;
}

}  // namespace

bool is_gguf_adapter(const std::filesystem::path& path) {
  const auto metadata = short_metadata(path);
  return metadata && metadata->text("general.type") == "adapter";
}

std::optional<GgufHeads> heads_of_gguf(const std::filesystem::path& model) {
  const auto metadata = short_metadata(model);
  const std::string architecture = metadata ? metadata->text("general.architecture") : "";
  const std::string prefix = architecture + ".attention.head_count";
  const GgufValue* const queries = metadata ? metadata->find(prefix) : nullptr;
  const auto heads = queries == nullptr ? std::nullopt : queries->uint();
  if (!heads) {
    return std::nullopt;
  }
  const GgufValue* const keys = metadata->find(prefix + "_kv");
  return GgufHeads{*heads, keys == nullptr ? *heads : keys->uint().value_or(0), architecture};
}

Result<GgufAdapter> read_gguf_adapter(std::shared_ptr<const SourceFile> file,
                                      const std::optional<GgufHeads>& heads) {
  const std::string where = file->name();
  TRY_ASSIGN(const auto model, read_gguf_parts(std::move(file)));
  const std::string name = model.metadata().text("general.architecture");
  const GgufArchitecture* const architecture = find_gguf_architecture(name);
  if (architecture == nullptr) {
    return unsupported(where + ": an adapter for the architecture " + quote(name) +
                       ", which is not supported");
  }
  if (heads && !heads->architecture.empty() && heads->architecture != name) {
    return fail(ErrorCode::kMismatch, where + ": an adapter for the architecture " + quote(name) +
                                          ", but its base has the architecture " +
                                          quote(heads->architecture));
  }
  if (model.metadata().find("adapter.alora.invocation_tokens") != nullptr) {
    return unsupported(where +
                       ": an activated LoRA, which changes only the tokens after its activation "
                       "tokens, so it cannot be merged");
  }
  GgufAdapter adapter;
  TRY_ASSIGN_IN(where, adapter.alpha, alpha_of(model.metadata()));
  std::vector<GgufWeight> weights;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    TRY_ASSIGN_IN(where + ": " + quote(model.tensors[i].name), auto weight,
                  AdapterNamer(*architecture, heads).name(model.tensors[i], i));
    weights.push_back(std::move(weight));
  }
  TRY_ASSIGN_IN(where, adapter.contents, list_gguf_weights(model, weights));
  adapter.contents.metadata.clear();
  adapter.has_conv1d =
      std::any_of(architecture->layer.begin(), architecture->layer.end(),
                  [](const GgufRole& role) { return role.form == GgufForm::kTransposed; });
  return adapter;
}

}  // namespace onnx_external
