#include "checkpoint/adapter_merge.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/adapter_settings.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/gguf/gguf_adapter.h"
#include "checkpoint/lora_product.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/view_source.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdapterConfig = "adapter_config.json";
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::uint64_t kMaxAdapterConfig = std::uint64_t{16} << 20;
constexpr std::array<std::string_view, 2> kAdapterFiles = {"adapter_model.safetensors",
                                                           "adapter_model.bin"};
constexpr std::array<std::string_view, 4> kModelFiles = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json"};
// The `model_type` of models with Conv1D layers (a Linear with a transposed weight), and the names
// of these layers.
constexpr std::array<std::string_view, 4> kWithConv1d = {"gpt2", "openai-gpt", "imagegpt",
                                                         "decision_transformer"};
constexpr std::array<std::string_view, 4> kConv1d = {"c_attn", "q_attn", "c_proj", "c_fc"};

bool is_regular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

template <std::size_t kCount>
bool contains(const std::array<std::string_view, kCount>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

Result<Json> read_config(const fs::path& path) {
  TRY_ASSIGN(const auto file, SourceFile::open(path));
  TRY_ASSIGN(const auto text, read_file(*file, kMaxAdapterConfig));
  TRY_ASSIGN_IN(path.string(), auto json, parse_json(text, 2 * kMaxJsonDepth));
  return json;
}

// The two matrices of one module.
struct LoraSides {
  std::string module;
  bool is_embedding = false;
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
};

TensorView transposed(TensorView view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

class AdapterMerger {
 public:
  AdapterMerger(const Json& config, std::string model_type, CheckpointAccess::Contents& contents)
      : config_(config), model_type_(std::move(model_type)), contents_(contents) {}

  // `adapter`: its tensors, whose storages are those of the contents.
  Status merge(const std::vector<TensorView>& adapter) {
    TRY(list_base());
    std::map<std::pair<std::string, bool>, LoraSides> pairs;
    for (const TensorView& tensor : adapter) {
      TRY(sort(tensor, pairs));
    }
    for (const auto& [place, sides] : pairs) {
      if (sides.a == nullptr || sides.b == nullptr) {
        return fail(ErrorCode::kCorrupt, quote(sides.module) + " has only one of its two matrices");
      }
      TRY(add(sides));
    }
    return {};
  }

  [[nodiscard]] std::size_t changed() const { return changed_; }

 private:
  Status list_base() {
    const std::vector<TensorView>& tensors = contents_.all.tensors;
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      places_.emplace(tensors[i].name, i);
    }
    return {};
  }

  Status sort(const TensorView& tensor, std::map<std::pair<std::string, bool>, LoraSides>& pairs) {
    static const RE2 kMatrix("(.+)\\.lora_(embedding_)?([AB])(?:\\.weight)?");
    std::string name = tensor.name;
    if (name.starts_with(kPrefix)) {
      name.erase(0, kPrefix.size());
    }
    std::string module;
    std::string embedding;
    std::string side;
    if (RE2::FullMatch(name, kMatrix, &module, &embedding, &side)) {
      LoraSides& sides = pairs[{module, !embedding.empty()}];
      sides.module = module;
      sides.is_embedding = !embedding.empty();
      (side == "A" ? sides.a : sides.b) = &tensor;
      return {};
    }
    if (name.find(".lora_") != std::string::npos) {
      return fail(
          ErrorCode::kUnsupported,
          quote(tensor.name) + " is not a matrix of a plain LoRA; " + std::string(kMergeByPeft));
    }
    RE2::GlobalReplace(&name, "\\.modules_to_save\\.", ".");
    RE2::GlobalReplace(&name, "\\.base_layer\\.", ".");
    return replace(tensor, name);
  }

  // Returns the base's tensor for a parameter: the one of this name, or the only one whose name
  // ends with it.
  Result<std::uint32_t> place_of(const std::string& name) const {
    if (const auto found = places_.find(name); found != places_.end()) {
      return found->second;
    }
    std::optional<std::uint32_t> only;
    for (const auto& [key, place] : places_) {
      if (name.ends_with("." + std::string(key)) || std::string(key).ends_with("." + name)) {
        if (only) {
          return fail(ErrorCode::kAmbiguous,
                      "it changes " + quote(name) +
                          ", but several tensors of its base have names that end with this name");
        }
        only = place;
      }
    }
    if (!only) {
      return fail(ErrorCode::kNotFound,
                  "it changes " + quote(name) +
                      ", but its base has no such tensor: pass the base before its adapter");
    }
    return *only;
  }

  Status replace(const TensorView& tensor, const std::string& name) {
    TRY_ASSIGN(const auto place, place_of(name));
    TensorView& weight = contents_.all.tensors[place];
    if (tensor.shape != weight.shape) {
      return fail(ErrorCode::kMismatch, quote(tensor.name) + " is " + shape_text(tensor.shape) +
                                            ", but " + quote(name) + " in its base is " +
                                            shape_text(weight.shape) + "; " +
                                            std::string(kMergeByPeft));
    }
    TensorView made = tensor;
    if (tensor.dtype != weight.dtype) {
      TRY(check_floats(tensor));
      TRY(check_floats(weight));
      TRY_ASSIGN(made, computed(weight, converted(source_of(tensor), tensor.dtype, weight.dtype),
                                {tensor.storage}));
    }
    made.name = weight.name;
    weight = std::move(made);
    ++changed_;
    return {};
  }

  Status add(const LoraSides& sides) {
    TRY_ASSIGN(const auto place, place_of(sides.module + ".weight"));
    TensorView& weight = contents_.all.tensors[place];
    TRY(check_sizes(sides, weight));
    const bool turned = sides.is_embedding || is_conv1d(sides.module);
    const TensorView left = turned ? transposed(*sides.a) : *sides.b;
    const TensorView right = turned ? transposed(*sides.b) : *sides.a;
    if (weight.shape != Shape{left.shape[0], right.shape[1]}) {
      return fail(ErrorCode::kMismatch, "the product for " + quote(sides.module) + " is " +
                                            shape_text(Shape{left.shape[0], right.shape[1]}) +
                                            ", but the weight in its base is " +
                                            shape_text(weight.shape) +
                                            ": the adapter belongs to another model");
    }
    const auto rank = static_cast<std::uint64_t>(left.shape[1]);
    TRY_ASSIGN(const float scale, adapter_scale(sides.module, rank, config_));
    TRY_ASSIGN(auto made, computed(weight,
                                   lora_sum({.weight = source_of(weight),
                                             .left = source_of(left),
                                             .right = source_of(right),
                                             .weight_type = weight.dtype,
                                             .left_type = left.dtype,
                                             .right_type = right.dtype,
                                             .rows = static_cast<std::uint64_t>(left.shape[0]),
                                             .columns = static_cast<std::uint64_t>(right.shape[1]),
                                             .rank = rank,
                                             .scale = scale}),
                                   {weight.storage, left.storage, right.storage}));
    weight = std::move(made);
    ++changed_;
    return {};
  }

  static Status check_floats(const TensorView& tensor) {
    const bool is_plain = can_cast_from(tensor.dtype) && can_cast_to(tensor.dtype) &&
                          bit_size(tensor.dtype) >= 8 && !tensor.conj && !tensor.neg;
    return is_plain ? Status()
                    : fail(ErrorCode::kUnsupported, quote(tensor.name) + " is of the type " +
                                                        std::string(torch_name(tensor.dtype)) +
                                                        ", which onnx-external cannot merge");
  }

  static Status check_sizes(const LoraSides& sides, const TensorView& weight) {
    for (const TensorView* const each : {sides.a, sides.b, &weight}) {
      TRY(check_floats(*each));
    }
    if (sides.a->shape.size() != 2 || sides.b->shape.size() != 2 ||
        sides.a->shape[0] != sides.b->shape[1]) {
      return fail(ErrorCode::kUnsupported,
                  quote(sides.a->name) + " " + shape_text(sides.a->shape) + " and " +
                      quote(sides.b->name) + " " + shape_text(sides.b->shape) +
                      " are not the two matrices of a Linear; " + std::string(kMergeByPeft));
    }
    return {};
  }

  // peft's fan_in_fan_out is that of the last module where they differ.
  [[nodiscard]] bool is_conv1d(std::string_view module) const {
    if (contains(kWithConv1d, model_type_)) {
      return contains(kConv1d, module.substr(module.find_last_of('.') + 1));
    }
    return is_set_in_adapter(config_.find("fan_in_fan_out"));
  }

  [[nodiscard]] ReadSource source_of(const TensorView& view) const {
    return view_source(contents_.all, view, contents_.inflated);
  }

  Result<TensorView> computed(const TensorView& like, ReadSource source,
                              std::vector<std::uint32_t> from) {
    TRY_ASSIGN(const auto nbytes, contiguous_nbytes(like.dtype, like.shape));
    std::sort(from.begin(), from.end());
    from.erase(std::unique(from.begin(), from.end()), from.end());
    TensorView view;
    view.name = like.name;
    view.dtype = like.dtype;
    view.shape = like.shape;
    view.strides = contiguous_strides(like.shape);
    view.storage = add_computed(contents_.all, nbytes, std::move(source), std::move(from));
    return view;
  }

  const Json& config_;
  std::string model_type_;
  CheckpointAccess::Contents& contents_;
  OwnedNameMap<std::uint32_t> places_;
  std::size_t changed_ = 0;
};

// The config.json of a base; nothing if it has none.
std::optional<Json> config_of(const fs::path& base) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(base, ignored) ? base : base.parent_path();
  const fs::path path = folder / "config.json";
  auto config = is_regular(path) ? read_config(path) : fail(ErrorCode::kNotFound, "");
  return config && config->object() != nullptr ? std::optional(*std::move(config)) : std::nullopt;
}

// Returns the `model_type` of the base model, or "" if it is not known.
std::string model_type_of(const fs::path& base) {
  const auto config = config_of(base);
  const std::string* const type = config ? config->get<std::string>("model_type") : nullptr;
  return type == nullptr ? "" : *type;
}

std::optional<GgufHeads> heads_of(const fs::path& base) {
  if (auto heads = heads_of_gguf(base)) {
    return heads;
  }
  const auto config = config_of(base);
  const auto* const queries = config ? config->get<std::uint64_t>("num_attention_heads") : nullptr;
  const auto* const keys = config ? config->get<std::uint64_t>("num_key_value_heads") : nullptr;
  return queries == nullptr
             ? std::nullopt
             : std::optional(GgufHeads{*queries, keys == nullptr ? *queries : *keys});
}

// Appends an adapter's storages, and returns its tensors, which are not tensors of the checkpoint.
std::vector<TensorView> take_tensors(FileContents part, FileContents& all) {
  part.tied_names.clear();
  const std::size_t count = all.tensors.size();
  append_contents(all, std::move(part));
  const auto first = all.tensors.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<TensorView> adapter(first, all.tensors.end());
  all.tensors.resize(count);
  return adapter;
}

Result<fs::path> weights_of(const fs::path& folder) {
  for (const std::string_view name : kAdapterFiles) {
    if (is_regular(folder / name)) {
      return folder / name;
    }
  }
  return fail(ErrorCode::kNotFound, (folder / kAdapterFiles[0]).string() + ": not found beside " +
                                        std::string(kAdapterConfig));
}

}  // namespace

std::optional<fs::path> adapter_folder(const fs::path& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? path : path.parent_path();
  if (!is_folder && !contains(kAdapterFiles, path.filename().string())) {
    return std::nullopt;
  }
  const bool has_model =
      is_folder && std::any_of(kModelFiles.begin(), kModelFiles.end(),
                               [&](std::string_view name) { return is_regular(folder / name); });
  return is_regular(folder / kAdapterConfig) && !has_model ? std::optional(folder) : std::nullopt;
}

Status merge_adapter(const fs::path& folder, const fs::path& base, const OpenOptions& options,
                     CheckpointAccess::Contents& contents) {
  const std::string where = (folder / kAdapterConfig).string();
  TRY_ASSIGN(const auto config, read_config(folder / kAdapterConfig));
  TRY_IN(where, config.object() == nullptr ? Status(fail(ErrorCode::kCorrupt, "is not an object"))
                                           : check_adapter_settings(config));
  TRY_ASSIGN(const auto weights, weights_of(folder));
  TRY_ASSIGN(auto file, SourceFile::open(weights));
  TRY_ASSIGN(auto part, read_checkpoint_file(std::move(file), options));
  const auto adapter = take_tensors(std::move(part), contents.all);
  AdapterMerger merger(config, model_type_of(base), contents);
  TRY_IN(folder.string(), merger.merge(adapter));
  contents.all.notes.push_back(fmt::format("{}: an adapter, merged into {} weights of {}",
                                           folder.string(), merger.changed(), base.string()));
  return {};
}

Status merge_gguf_adapter(const fs::path& path, const fs::path& base,
                          CheckpointAccess::Contents& contents) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  TRY_ASSIGN(auto read, read_gguf_adapter(std::move(file), heads_of(base)));
  TRY_ASSIGN(const auto config,
             parse_json(fmt::format(R"({{"peft_type": "LORA", "lora_alpha": {}}})", read.alpha)));
  read.contents.facts = contents.all.facts;
  const auto adapter = take_tensors(std::move(read.contents), contents.all);
  AdapterMerger merger(config, read.has_conv1d ? std::string(kWithConv1d[0]) : "", contents);
  TRY_IN(path.string(), merger.merge(adapter));
  contents.all.notes.push_back(fmt::format("{}: an adapter, merged into {} weights of {}",
                                           path.string(), merger.changed(), base.string()));
  return {};
}

}  // namespace onnx_external
