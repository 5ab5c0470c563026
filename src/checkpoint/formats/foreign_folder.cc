#include "checkpoint/formats/foreign_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/foreign_format.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/formats/training_files.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::size_t kMaxNames = 10'000;
constexpr std::size_t kShownNames = 4;
constexpr std::uint64_t kMaxSmallJson = std::uint64_t{16} << 20;

constexpr std::string_view kTrainerFolders = "checkpoint-*/";
constexpr std::string_view kPackAgain =
    "pack its folder again; in the parent folder, run: zip -0 -r m.pt FOLDER";

// --- names -------------------------------------------------------------------------------------

// A folder's entries, sorted; those of folders end in '/'.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (names.size() == kMaxNames) {
      break;
    }
    std::error_code ignored;
    names.push_back(entry->path().filename().string() + (entry->is_directory(ignored) ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct LayoutRow {
  std::string_view names;   // patterns of first_fit()
  std::string_view beside;  // likewise for another entry that must exist; empty for none
  std::string_view what;
  std::string_view advice;
  bool is_read = false;  // its weights are read as a checkpoint; it is not a model of transformers
};

// Folders with weights in parts, in the layout of another library, or in a subfolder. The first
// match is reported. base/foreign_format.cc has the formats of single files.
constexpr std::array kLayoutRows = {
    LayoutRow{"zero_to_fp32.py", "", "a DeepSpeed checkpoint in parts",
              "join them first: python zero_to_fp32.py . OUTPUT"},
    LayoutRow{"global_step*/|zero_pp_rank_*_optim_states.pt", "",
              "a part of a DeepSpeed (ZeRO) checkpoint",
              "join the parts first with DeepSpeed's zero_to_fp32.py"},
    LayoutRow{"data.pkl", "data/|version", "the pickle of an unpacked torch file", kPackAgain},
    LayoutRow{"tp_rank_*|mp_rank_00*|latest_checkpointed_iteration.txt", "",
              "a Megatron or NeMo checkpoint in parts, one for each rank",
              "join and convert the parts first, with the library that wrote them"},
    LayoutRow{
        "consolidated*.safetensors", "params.json", "weights in Mistral's own format",
        "use the files for transformers (config.json, model.safetensors), or convert these weights",
        true},
    LayoutRow{"consolidated.*.pth", "params.json", "weights in Meta's own format",
              "use the files for transformers (config.json, model.safetensors), or convert these "
              "weights with convert_llama_weights_to_hf.py from transformers",
              true},
    LayoutRow{"pytorch_lora_weights.safetensors", "", "a diffusers adapter (LoRA)",
              "load it into its pipeline, call fuse_lora(), and save the pipeline", true},
    LayoutRow{kTrainerFolders, "", "a Trainer checkpoint", "pass that folder"},
    LayoutRow{"snapshots/", "blobs/", "a repository folder in the Hugging Face cache",
              "pass the folder of a revision in it: snapshots/REVISION"},
    LayoutRow{"*.onnx", "", "an ONNX model", "it is exported already", true},
};

// Trainer names its folders by steps, so the longest name, and the last of these, is the newest.
std::string trainer_text(const std::vector<std::string>& names, std::string_view advice) {
  const std::string* newest = nullptr;
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (first_fit(std::span(&name, 1), kTrainerFolders) != nullptr) {
      newest = newest == nullptr || name.size() >= newest->size() ? &name : newest;
      ++count;
    }
  }
  return named_text(*newest,
                    count == 1 ? "a Trainer checkpoint"
                               : fmt::format("the last of {} Trainer checkpoints", count),
                    advice);
}

std::string told_by_names(const std::vector<std::string>& names, bool also_read) {
  if (auto found = foreign_name(names)) {
    return *std::move(found);
  }
  for (const LayoutRow& row : kLayoutRows) {
    const std::string* name = first_fit(names, row.names);
    const bool has_other = row.beside.empty() || first_fit(names, row.beside) != nullptr;
    if (name != nullptr && has_other && (also_read || !row.is_read)) {
      return row.names == kTrainerFolders ? trainer_text(names, row.advice)
                                          : named_text(*name, row.what, row.advice);
    }
  }
  return "";
}

// --- JSON --------------------------------------------------------------------------------------

std::optional<Json> small_json(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return std::nullopt;
  }
  const auto file = SourceFile::open(path);
  const auto text = file ? read_file(**file, kMaxSmallJson) : fail(file.error());
  auto json = text ? parse_json(*text, 2 * kMaxJsonDepth) : fail(text.error());
  return json ? std::optional(*std::move(json)) : std::nullopt;
}

// Whoever reads JSON says what is wrong with a value of another kind, or with a damaged one: with a
// byte order mark, in UTF-16, with comments.
bool begins_as_json(std::string_view head) {
  if (head.starts_with(kByteOrderMark) || head.starts_with("\xff\xfe") ||
      head.starts_with("\xfe\xff")) {
    return true;
  }
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && "{[\"-/#0123456789"sv.find(head[first]) != head.npos;
}

// Reports a file that should be JSON, but is a pointer or a web page.
void add_foreign_json(const fs::path& path, std::vector<FolderFact>& facts) {
  std::error_code ignored;
  const auto file =
      fs::is_regular_file(path, ignored) ? SourceFile::open(path) : fail(ErrorCode::kNotFound, "");
  const auto head = file ? head_of(**file) : fail(file.error());
  const auto found = head ? foreign_format(*head) : std::nullopt;
  if (found && !begins_as_json(*head) && !small_json(path)) {
    facts.push_back({FolderKind::kForeign, path.filename().string() + ": " + found->text()});
  }
}

std::string string_in(const Json& json, std::string_view key) {
  const Json* value = json.object() == nullptr ? nullptr : json.find(key);
  return value == nullptr || value->string() == nullptr ? "" : *value->string();
}

const Json* object_in(const Json& json, std::string_view key) {
  const Json* value = json.object() == nullptr ? nullptr : json.find(key);
  return value == nullptr || value->object() == nullptr ? nullptr : value;
}

// --- kinds of folders --------------------------------------------------------------------------

using Facts = std::vector<FolderFact>;

// The parts of a pipeline, which are folders of their own.
void add_pipeline(const Json& index, const std::vector<std::string>& names, Facts& facts) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    if (name.ends_with('/')) {
      parts.push_back(name.substr(0, name.size() - 1));
    }
  }
  const std::string pipeline = string_in(index, "_class_name");
  facts.push_back(
      {FolderKind::kForeign,
       "model_index.json: a diffusers pipeline (" + pipeline + ") with several models" +
           (parts.empty() ? "" : ": " + quote_list(parts, 2 * kShownNames)) +
           "; for a transformers model in it, such as a text encoder, pass its folder; load any "
           "other model with diffusers, and pass the module to oe.torch.export"});
}

void add_adapter(const fs::path& folder, const std::vector<std::string>& names, Facts& facts) {
  const std::string* weights = first_fit(names, "adapter_model.*");
  const auto config = small_json(folder / "adapter_config.json");
  if (!config && weights == nullptr) {
    return;
  }
  const std::string base = config ? string_in(*config, "base_model_name_or_path") : "";
  const std::string method = config ? string_in(*config, "peft_type") : "";
  facts.push_back(
      {FolderKind::kAdapter,
       (config ? "adapter_config.json" : *weights) + ": an adapter" +
           (method.empty() ? "" : " (" + method + ")") +
           (base.empty() ? ", not a model" : " of " + quote(base)) +
           "; merge it first: base = AutoModel....from_pretrained(" +
           (base.empty() ? "BASE" : quote(base)) +
           "); model = peft.PeftModel.from_pretrained(base, ADAPTER).merge_and_unload(); "
           "model.save_pretrained(MERGED)" +
           (first_fit(names, "config.json") != nullptr
                ? ". To use the model without the adapter, remove adapter_config.json"
                : "")});
}

void add_quantization(const Json& config, Facts& facts) {
  const auto add = [&](const std::string& method, std::string_view where) {
    facts.push_back(
        {FolderKind::kQuantized, "config.json: the weights are quantized (" +
                                     (method.empty() ? "by an unknown method" : method) +
                                     ", in its " + std::string(where) +
                                     ") by a method or in a layout that is not supported. Export "
                                     "the checkpoint that they were quantized from"});
  };
  std::vector<const Json*> configs{&config};
  for (const auto& [key, value] : *config.object()) {
    if (key.ends_with("_config") && value.object() != nullptr) {
      configs.push_back(&value);  // of the text model, or the vision model
    }
  }
  for (const Json* each : configs) {
    for (const std::string_view name : {"quantization_config"sv, "compression_config"sv}) {
      if (const Json* found = object_in(*each, name);
          found != nullptr && !found->object()->empty()) {
        return add(string_in(*found, "quant_method"), name);
      }
    }
  }
  if (const Json* found = object_in(config, "quantization"); found && found->find("bits")) {
    add("mlx", "quantization");
  }
}

void add_config(const Json& config, Facts& facts) {
  if (const std::string name = string_in(config, "_class_name"); !name.empty()) {
    facts.push_back(
        {FolderKind::kForeign, "config.json: a diffusers model (" + name +
                                   " in _class_name), not a transformers model; load it with "
                                   "diffusers, and pass the module to oe.torch.export"});
  }
  const bool is_named = config.find("model_type") != nullptr || config.find("architectures");
  if (const std::string name = string_in(config, "architecture"); !name.empty() && !is_named) {
    facts.push_back(
        {FolderKind::kForeign, "config.json: a timm model (" + name +
                                   " in architecture), not a transformers model; create it with "
                                   "timm.create_model, and pass the module to oe.torch.export"});
  }
  add_quantization(config, facts);
}

// sentence-transformers: modules.json lists the parts that run one after another.
void add_sentence_parts(const Json& modules, bool has_config, Facts& facts) {
  std::vector<std::string> others;
  std::string transformer;
  for (const Json& module : modules.array() == nullptr ? JsonArray() : *modules.array()) {
    const std::string type = string_in(module, "type");
    const std::string name = type.substr(type.find_last_of('.') + 1);
    const std::string path = string_in(module, "path");
    if (name == "Transformer") {
      transformer = path;
    } else if (!name.empty()) {
      others.push_back(path.empty() ? name : name + " (" + path + ")");
    }
  }
  if (!has_config && !transformer.empty()) {
    facts.push_back({FolderKind::kForeign,
                     "modules.json: a sentence-transformers model; its transformers model is in " +
                         quote(transformer) + ": pass that folder"});
  } else if (!others.empty()) {
    facts.push_back({FolderKind::kPart,
                     "modules.json: the steps that sentence-transformers adds after the model are "
                     "not in the graph: " +
                         quote_list(others, 2 * kShownNames)});
  }
}

struct PartRow {
  std::string_view pattern;
  std::string_view what;
};

// Parts of a model that are next to the transformers model, but are not in any of its classes.
constexpr std::array kParts = {
    PartRow{"model_head.pkl", "the SetFit classifier"},
    PartRow{"model_head.joblib", "the SetFit classifier"},
    PartRow{"colbert_linear.pt", "the ColBERT head"},
    PartRow{"sparse_linear.pt", "a head for sparse vectors"},
    PartRow{"v_head.*", "the TRL value head"},
    PartRow{"value_head.*", "a value head"},
    PartRow{"medusa_lm_head*", "the group of Medusa heads"},
    PartRow{"language_model/", "a language model for the decoder of a processor"},
};

void add_parts(const std::vector<std::string>& names, Facts& facts) {
  for (const PartRow& row : kParts) {
    if (const std::string* name = first_fit(names, row.pattern)) {
      facts.push_back({FolderKind::kPart,
                       *name + ": " + std::string(row.what) + ", which is not in the graph"});
    }
  }
}

}  // namespace

std::vector<FolderFact> folder_facts(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  const bool has_config = first_fit(names, "config.json") != nullptr;
  Facts facts;
  if (const auto index = small_json(folder / "model_index.json")) {
    add_pipeline(*index, names, facts);
  }
  add_adapter(folder, names, facts);
  add_foreign_json(folder / "config.json", facts);
  if (const auto config = small_json(folder / "config.json"); config && config->object()) {
    add_config(*config, facts);
  }
  if (const auto modules = small_json(folder / "modules.json")) {
    add_sentence_parts(*modules, has_config, facts);
  }
  if (has_config) {
    add_parts(names, facts);
  } else if (std::string text = told_by_names(names, true); facts.empty() && !text.empty()) {
    facts.push_back({FolderKind::kForeign, std::move(text)});
  }
  return facts;
}

std::string why_no_checkpoint(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (const auto index = small_json(folder / "model_index.json")) {
    Facts facts;
    add_pipeline(*index, names, facts);
    return facts.front().text;
  }
  if (std::string text = told_by_names(names, false); !text.empty()) {
    return text;
  }
  if (const auto state = std::find_if(names.begin(), names.end(), is_training_state);
      state != names.end()) {
    return quote(*state) +
           " is training state, and the weights are not next to it; pass the folder that contains "
           "the weights";
  }
  std::vector<std::string> inside;
  for (const std::string& name : names) {
    if (name.ends_with('/') && !name.starts_with('.')) {
      inside.push_back(name.substr(0, name.size() - 1));
    }
  }
  for (const std::string& name : inside) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name / "data.pkl", ignored)) {
      return "its folder " + quote(name) +
             " is an unpacked torch file; pack it again: " + "zip -0 -r m.pt " + name;
    }
  }
  return inside.empty() ? "" : "its folders are " + quote_list(inside, kShownNames);
}

}  // namespace onnx_external
