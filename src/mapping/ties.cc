#include "mapping/ties.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "mapping/name_index.h"
#include "mapping/name_refinement.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxTieCandidates = 16;     // of one slot
constexpr std::size_t kMaxTieComparisons = 4096;  // pairs of tensors that are read
constexpr std::size_t kMaxModuleName = 1024;  // a file can have a million slots used in one module

// The name of a dropped key in the graph, after the key prefix is applied; nothing when it has
// none.
std::optional<std::string> aligned_name(const std::string& name, const KeyPrefix& key_prefix,
                                        const MappingTask& task) {
  std::string own = drop_wrappers(name);
  const auto take = [&own](std::string_view prefix) {
    const bool under = own.starts_with(prefix) && own.size() > prefix.size();
    own.erase(0, under ? prefix.size() : own.size());
  };
  if (!task.option_alignment.empty()) {
    take(std::string_view(task.option_alignment).substr(1));
  }
  if (key_prefix.kind == KeyPrefix::Kind::kRemove) {
    take(key_prefix.prefix);
  }
  if (own.empty()) {
    return std::nullopt;
  }
  return key_prefix.kind == KeyPrefix::Kind::kAdd ? key_prefix.prefix + own : own;
}

bool is_open_weight(const MappingTask& task, std::uint32_t slot) {
  return !task.fills[slot] && task.slot_names[task.name_of_slot[slot]].role == SlotRole::kByName;
}

// By names without the prefix that the graph does not have.
NameMap<std::uint32_t> unused_keys(const MappingTask& task, const KeyPrefix& key_prefix) {
  const std::string_view prefix =
      key_prefix.kind == KeyPrefix::Kind::kRemove ? key_prefix.prefix : std::string_view();
  NameMap<std::uint32_t> keys;
  for (std::uint32_t key = 0; key < task.key_names.size(); ++key) {
    const std::string_view name = task.key_names[key].name;
    if (task.key_names[key].usable && !task.key_used[key] && name.starts_with(prefix)) {
      keys.emplace(name.substr(prefix.size()), key);
    }
  }
  return keys;
}

class GraphTies {
 public:
  GraphTies(const KeyPrefix& key_prefix, const MappingEvidence& evidence, MappingTask& task)
      : key_prefix_(key_prefix), evidence_(evidence), task_(task) {}

  Status fill() {
    const std::vector<Slot>& slots = task_.graph.slots;
    bool any = false;
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      any = any || (is_open_weight(task_, slot) && !has_symbolic_dimension(slots[slot]));
    }
    if (!any) {
      return {};
    }
    fill_by_modules();
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot].kind == SlotKind::kIdentityOutput) {
        fill_identity(slot);
      }
    }
    TRY(fill_by_data());
    fill_embeddings();
    fill_biases();
    return {};
  }

 private:
  // The state dict lists a parameter that two modules share under both names. The graph has it
  // under one name, and nodes that use it record the other module.
  void fill_by_modules() {
    NameMap<std::uint32_t> keys;
    for (std::uint32_t slot = 0; slot < task_.graph.slots.size(); ++slot) {
      if (task_.graph.slots[slot].used_in.empty() || !is_open_weight(task_, slot)) {
        continue;
      }
      if (keys.empty()) {
        keys = unused_keys(task_, key_prefix_);
      }
      for (const std::uint32_t module : task_.graph.slots[slot].used_in) {
        fill_from_module(slot, task_.graph.modules[module], keys);
      }
    }
  }

  void fill_from_module(std::uint32_t slot, const std::string& module,
                        const NameMap<std::uint32_t>& keys) {
    if (module.size() > kMaxModuleName) {
      return;
    }
    const std::uint32_t name = task_.name_of_slot[slot];
    const std::string_view own = task_.slot_names[name].name;
    std::string wanted = module + "." + std::string(own.substr(own.rfind('.') + 1));
    if (key_prefix_.kind == KeyPrefix::Kind::kAdd && wanted.starts_with(key_prefix_.prefix)) {
      wanted.erase(0, key_prefix_.prefix.size());
    }
    const auto key = keys.find(wanted);
    if (key != keys.end() && !task_.fills[slot] && !task_.key_used[key->second] &&
        agrees(task_, name, key->second)) {
      task_.fill_by_name(name, key->second, Rule::kGraphTie);
    }
  }

  // Handles an Identity that reads a weight, which means that two weights were equal at export.
  // Copies of a layer are also equal before training, so only an embedding and its output layer
  // count as tied.
  void fill_identity(std::uint32_t output) {
    const auto source = task_.slot_by_name.find(task_.graph.slots[output].merged_into);
    if (!source || task_.fills[output].has_value() == task_.fills[*source].has_value()) {
      return;
    }
    const std::uint32_t open = task_.fills[output] ? *source : output;
    const std::uint32_t filled = task_.fills[output] ? output : *source;
    if (is_open_weight(task_, open) && are_ends_of_embedding(output, *source)) {
      fill_like(open, filled);
    }
  }

  [[nodiscard]] bool are_ends_of_embedding(std::uint32_t one, std::uint32_t other) const {
    const Slot& a = task_.graph.slots[one];
    const Slot& b = task_.graph.slots[other];
    return (a.is_gathered && b.is_multiplied) || (a.is_multiplied && b.is_gathered);
  }

  // Fills `open` with the key and recipe of `filled`, if type and shape allow it.
  void fill_like(std::uint32_t open, std::uint32_t filled) {
    const Fill fill = *task_.fills[filled];
    const std::uint32_t name = task_.name_of_slot[open];
    if (agrees(task_, name, fill.key, fill.recipe)) {
      task_.fill(name, fill.key, Rule::kGraphTie, fill.recipe);
    }
  }

  // Fills the open end of an embedding whose other end has the same data.
  Status fill_by_data() {
    if (!evidence_.same_data || !evidence_.slot_is_uniform) {
      return {};
    }
    using Form = std::pair<std::int32_t, std::optional<SymbolicShape>>;
    std::map<Form, std::vector<std::uint32_t>> filled;
    const std::vector<Slot>& slots = task_.graph.slots;
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      if (task_.fills[slot] && slots[slot].has_data) {
        std::vector<std::uint32_t>& alike = filled[Form(slots[slot].elem_type, slots[slot].shape)];
        if (alike.size() < kMaxTieCandidates) {
          alike.push_back(slot);
        }
      }
    }
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      const auto alike = filled.find(Form(slots[slot].elem_type, slots[slot].shape));
      if (!is_open_weight(task_, slot) || !slots[slot].has_data || alike == filled.end()) {
        continue;
      }
      for (const std::uint32_t other : alike->second) {
        TRY_ASSIGN(auto tied, same_distinct_data(slot, other));
        if (tied) {
          fill_like(slot, other);
          break;
        }
      }
    }
    return {};
  }

  Result<bool> same_distinct_data(std::uint32_t slot, std::uint32_t other) {
    if (!are_ends_of_embedding(slot, other) || ++comparisons_ > kMaxTieComparisons) {
      return false;
    }
    auto same = evidence_.same_data(slot, other);
    if (!same || !*same) {
      return same;
    }
    auto uniform = evidence_.slot_is_uniform(slot);
    return uniform ? Result<bool>(!*uniform) : uniform;
  }

  // Fills a slot that serves both ends of a tied embedding. It has the name of one end, and the
  // checkpoint has the name of the other.
  void fill_embeddings() {
    const std::vector<Slot>& slots = task_.graph.slots;
    std::optional<std::uint32_t> embedding;
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      if (is_open_weight(task_, slot) && slots[slot].is_gathered && slots[slot].is_multiplied) {
        if (embedding) {
          return;  // which key is whose?
        }
        embedding = slot;
      }
    }
    if (!embedding) {
      return;
    }
    std::optional<std::uint32_t> only;
    for (std::uint32_t key = 0; key < task_.keys.keys.size(); ++key) {
      const MappingKey& left = task_.keys.keys[key];
      const bool fits = !task_.key_used[key] && task_.key_names[key].usable &&
                        is_floating(left.dtype) && is_parameter_name(left.name) &&
                        agrees(task_, task_.name_of_slot[*embedding], key);
      const bool same_bytes =
          only && left.bytes_id && left.bytes_id == task_.keys.keys[*only].bytes_id;
      if (fits && only && !same_bytes) {
        return;
      }
      only = fits && !only ? std::optional(key) : only;
    }
    // The slot states its shape, so that a key of another kind cannot fit by chance.
    if (only && slots[*embedding].shape) {
      task_.fill_by_name(task_.name_of_slot[*embedding], *only, Rule::kGraphTie);
    }
  }

  // Fills the bias of an output layer that is tied to an embedding. BERT and similar models keep
  // that bias in the module around the layer, and tie the layer's own bias to it:
  // "predictions.decoder.bias" is "predictions.bias". A layer with a weight of its own also has a
  // bias of its own.
  void fill_biases() {
    constexpr std::string_view kWeight = ".weight";
    constexpr std::string_view kBias = ".bias";
    NameSet tied_layers;
    for (std::uint32_t slot = 0; slot < task_.fills.size(); ++slot) {
      const std::string_view name = task_.slot_names[task_.name_of_slot[slot]].name;
      const bool is_tied = task_.fills[slot] && (task_.fills[slot]->rule == Rule::kGraphTie ||
                                                 task_.fills[slot]->rule == Rule::kMetadataTie);
      if (is_tied && name.ends_with(kWeight)) {
        tied_layers.insert(name.substr(0, name.size() - kWeight.size()));
      }
    }
    const NameMap<std::uint32_t> keys =
        tied_layers.empty() ? NameMap<std::uint32_t>() : unused_keys(task_, key_prefix_);
    for (std::uint32_t slot = 0; slot < task_.fills.size() && !keys.empty(); ++slot) {
      const std::string_view name = task_.slot_names[task_.name_of_slot[slot]].name;
      const std::string_view layer = name.substr(0, name.rfind('.'));
      const bool is_open = is_open_weight(task_, slot) && name.ends_with(kBias) &&
                           tied_layers.contains(layer) && layer.find('.') != layer.npos;
      if (is_open) {
        fill_from_module(slot, std::string(layer.substr(0, layer.rfind('.'))), keys);
      }
    }
  }

  const KeyPrefix& key_prefix_;
  const MappingEvidence& evidence_;
  MappingTask& task_;
  std::size_t comparisons_ = 0;
};

Status fill_metadata_tie(std::uint32_t slot_name, std::uint32_t key, const std::string& dropped,
                         MappingTask& task) {
  if (!task.slot_names[slot_name].open) {
    return {};
  }
  if (!agrees(task, slot_name, key)) {
    return fail(ErrorCode::kMismatch,
                "safetensors ties " + quote(dropped) + " to " + quote(task.keys.keys[key].name) +
                    ", but " + clash_text(task, slot_name, key, task.recipe_of(slot_name)));
  }
  task.fill_by_name(slot_name, key, Rule::kMetadataTie);
  return {};
}

}  // namespace

Status fill_metadata_ties(const KeyPrefix& key_prefix, MappingTask& task) {
  if (task.keys.tied_names.empty()) {
    return {};
  }
  NameIndex slots(open_slots(task));
  for (const auto& [dropped, kept] : task.keys.tied_names) {
    const auto key = task.key_by_name.find(kept);
    const std::optional<std::string> name = aligned_name(dropped, key_prefix, task);
    if (!key || !name || task.key_by_name.contains(dropped)) {
      continue;
    }
    const auto alike = slots.refined_as(refine(*name));
    if (alike.size() == 1) {
      TRY(fill_metadata_tie(alike.front(), *key, dropped, task));
      continue;
    }
    for (const NameIndex::Entry& slot : slots.called(*name)) {
      TRY(fill_metadata_tie(slot.id, *key, dropped, task));
    }
  }
  return {};
}

Status fill_graph_ties(const KeyPrefix& key_prefix, const MappingEvidence& evidence,
                       MappingTask& task) {
  return GraphTies(key_prefix, evidence, task).fill();
}

void fill_renamed(const KeyPrefix& key_prefix, MappingTask& task) {
  if (key_prefix.kind == KeyPrefix::Kind::kAdd) {
    return;
  }
  std::vector<std::pair<std::uint32_t, std::string_view>> numbered;
  for (std::uint32_t i = 0; i < task.slot_names.size(); ++i) {
    const auto base = name_before_number(task.slot_names[i].name);
    if (base && task.slot_names[i].open) {
      numbered.emplace_back(i, *base);
    }
  }
  if (numbered.empty()) {
    return;
  }
  const NameMap<std::uint32_t> keys = unused_keys(task, key_prefix);
  const NameSet defined(task.graph.defined_names.begin(), task.graph.defined_names.end());
  for (const auto& [slot_name, base] : numbered) {
    const auto key = keys.find(base);
    const auto other = task.slot_name_called(base);
    const bool is_taken =
        defined.contains(base) || (other && task.slot_names[*other].role == SlotRole::kCallers);
    if (key != keys.end() && is_taken && !task.key_used[key->second] &&
        agrees(task, slot_name, key->second)) {
      task.fill_by_name(slot_name, key->second, Rule::kRenamed);
    }
  }
}

}  // namespace onnx_external
