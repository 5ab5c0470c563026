#include "mapping/task.h"

#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/expression_text.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/name_refinement.h"
#include "mapping/weight_norm_names.h"
#include "onnx/graph_facts.h"
#include "onnx/value_types.h"

namespace onnx_external {
namespace {

// One key fits slots of several types only if it may be cast, and there are four types to cast to.
constexpr std::size_t kMaxSharedTypes = 8;

// Stores a changed name in the task, and returns a view of it.
std::string_view store(std::string name, MappingTask& task) {
  return task.changed_names.emplace_back(std::move(name));
}

std::string_view without_wrappers(std::string_view name, MappingTask& task) {
  return may_have_wrappers(name) ? store(drop_wrappers(std::string(name)), task) : name;
}

std::string_view refined(std::string_view name, MappingTask& task) {
  return name.find('.') == std::string_view::npos ? name : store(refine(name), task);
}

bool apply_rename(const Rename& rename, const RE2& pattern, MappingTask& task) {
  bool any = false;
  for (KeyName& key : task.key_names) {
    std::string name(key.name);
    if (rename.every ? RE2::GlobalReplace(&name, pattern, rename.replacement) > 0
                     : RE2::Replace(&name, pattern, rename.replacement)) {
      key.name = store(std::move(name), task);
      any = true;
    }
  }
  return any;
}

Status apply_renames(MappingTask& task) {
  for (const Rename& rename : task.options.renames) {
    const std::string shown = "rename " + quote(rename.pattern);
    const RE2 pattern(rename.pattern, RE2::Quiet);
    std::string why;
    if (!pattern.ok() || !pattern.CheckRewriteString(rename.replacement, &why)) {
      return fail(ErrorCode::kInvalidArgument,
                  shown + ": " + (pattern.ok() ? why : invalid_expression_text(pattern.error())));
    }
    if (!apply_rename(rename, pattern, task)) {
      return fail(ErrorCode::kNotFound, shown + " matches no key of the checkpoint");
    }
  }
  return {};
}

// The length of the prefix and its separator in `name`; 0 if the name is not under it.
std::size_t prefix_length(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() <= prefix.size()) {
    return 0;
  }
  if (prefix.ends_with('.') || prefix.ends_with('/')) {
    return prefix.size();
  }
  const bool dotted = name.find_first_of("./") != std::string_view::npos;
  const std::string_view separators = dotted ? "./" : "_";
  const bool separated = separators.find(name[prefix.size()]) != std::string_view::npos;
  return separated && name.size() > prefix.size() + 1 ? prefix.size() + 1 : 0;
}

Status apply_prefix(MappingTask& task) {
  if (!task.options.prefix || task.options.prefix->empty()) {
    return {};
  }
  const std::string prefix = drop_wrappers(*task.options.prefix);
  bool any = false;
  for (KeyName& key : task.key_names) {
    const std::size_t length = prefix_length(key.name, prefix);
    key.usable = length > 0;
    if (key.usable) {
      task.option_alignment = "-" + std::string(key.name.substr(0, length));
      key.name.remove_prefix(length);
      any = true;
    }
  }
  if (any) {
    return {};
  }
  std::vector<std::string> tops;
  for (const KeyName& key : task.key_names) {
    std::string top(key.name.substr(0, key.name.find('.')));
    if (tops.size() <= kMaxListed && std::find(tops.begin(), tops.end(), top) == tops.end()) {
      tops.push_back(std::move(top));
    }
  }
  return fail(ErrorCode::kNotFound, "prefix " + quote(*task.options.prefix) +
                                        ": no key of the checkpoint begins with it; " +
                                        (task.options.renames.empty() ? "" : "once renamed, ") +
                                        "keys start with " + quote_list(tops, kMaxListed));
}

// Renames and dropped wrappers may give two keys the same name. That is fine for ties; otherwise
// the choice is ambiguous.
Status check_changed_names(const MappingTask& task) {
  if (task.changed_names.empty()) {
    return {};
  }
  NameMap<std::uint32_t> first;
  for (std::uint32_t key = 0; key < task.key_names.size(); ++key) {
    const auto [other, fresh] = first.emplace(task.key_names[key].name, key);
    const MappingKey& one = task.keys.keys[other->second];
    const MappingKey& two = task.keys.keys[key];
    if (!fresh && (!one.bytes_id || one.bytes_id != two.bytes_id)) {
      return fail(ErrorCode::kAmbiguous, "keys " + quote(one.name) + " and " + quote(two.name) +
                                             " both become " + quote(other->first));
    }
  }
  return {};
}

Status list_keys(MappingTask& task) {
  const std::vector<MappingKey>& keys = task.keys.keys;
  task.key_names.resize(keys.size());
  task.key_by_name = NameIndexSet(
      [&keys](std::uint32_t place) { return std::string_view(keys[place].name); }, keys.size());
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (const std::uint32_t duplicate = task.key_by_name.add(i); duplicate != i) {
      return fail(ErrorCode::kAmbiguous,
                  "key " + quote(keys[i].name) + " is in checkpoint " +
                      std::to_string(keys[duplicate].argument + 1) + " and in checkpoint " +
                      std::to_string(keys[i].argument + 1) + "; pass only one of them");
    }
    task.key_names[i].name = keys[i].name;
  }
  TRY(apply_renames(task));
  for (KeyName& key : task.key_names) {
    key.name = without_wrappers(key.name, task);
  }
  TRY(check_changed_names(task));
  TRY(apply_prefix(task));
  for (KeyName& key : task.key_names) {
    key.refined = refined(key.name, task);
  }
  return {};
}

Status check_inputs(const MappingTask& task) {
  const std::vector<std::string>& graph_inputs = task.graph.graph_inputs;
  NameSet known;
  if (!task.options.inputs.empty()) {
    known.insert(graph_inputs.begin(), graph_inputs.end());
  }
  for (const std::string& input : task.options.inputs) {
    if (!known.contains(input)) {
      return fail(ErrorCode::kNotFound, "the graph has no input " + quote(input) +
                                            "; its inputs are " +
                                            quote_list(graph_inputs, kMaxListed));
    }
  }
  return {};
}

Status check_kept(const MappingTask& task) {
  for (const std::string& name : task.options.keep) {
    const auto slot = task.slot_by_name.find(name);
    const bool is_constant =
        std::any_of(task.graph.constants.begin(), task.graph.constants.end(),
                    [&](const ConstantTensor& constant) { return constant.name == name; });
    if (!is_constant && (!slot || !task.graph.slots[*slot].has_data)) {
      return fail(ErrorCode::kNotFound,
                  "to keep: the graph has no tensor with data called " + quote(name));
    }
  }
  return {};
}

// The slots of each name, in order.
void group_slots(MappingTask& task) {
  std::vector<std::uint32_t> next(task.slot_names.size() + 1);
  for (const std::uint32_t name : task.name_of_slot) {
    ++next[name + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  task.slots_of_names.resize(task.name_of_slot.size());
  for (std::uint32_t name = 0; name < task.slot_names.size(); ++name) {
    task.slot_names[name].slots =
        std::span(task.slots_of_names).subspan(next[name], next[name + 1] - next[name]);
  }
  for (std::uint32_t slot = 0; slot < task.name_of_slot.size(); ++slot) {
    task.slots_of_names[next[task.name_of_slot[slot]]++] = slot;
  }
}

// --- the common type of slots with the same name -------------------------------------------------

// The dimensions that fit both; false if there are none. Requires: equal ranks.
bool meet_dims(const SymbolicShape& other, SymbolicShape& shape) {
  bool possible = true;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    possible = possible && (!shape[i] || !other[i] || *shape[i] == *other[i]);
    shape[i] = shape[i] ? shape[i] : other[i];
  }
  return possible;
}

void meet(const Slot& slot, SharedType& type) {
  std::vector<std::int32_t>& types = type.elem_types;
  if (slot.elem_type != 0 && std::find(types.begin(), types.end(), slot.elem_type) == types.end()) {
    types.push_back(slot.elem_type);
    type.possible = type.possible && types.size() <= kMaxSharedTypes;
  }
  if (slot.shape && type.shape) {
    type.possible = type.possible && slot.shape->size() == type.shape->size() &&
                    meet_dims(*slot.shape, *type.shape);
  } else if (slot.shape) {
    type.shape = slot.shape;
  } else if (slot.broadcast_limit && type.broadcast_limit) {
    meet_broadcast_limits(*slot.broadcast_limit, *type.broadcast_limit);
  } else if (slot.broadcast_limit) {
    type.broadcast_limit = slot.broadcast_limit;
  }
}

void share_types(MappingTask& task) {
  for (SlotName& name : task.slot_names) {
    if (name.slots.size() < 2) {
      continue;
    }
    SharedType& type = task.shared_types.emplace_back();
    for (std::size_t i = 0; i < name.slots.size() && type.possible; ++i) {
      meet(task.graph.slots[name.slots[i]], type);
    }
    name.type = &type;
  }
}

// If several slots have the same name, the most restrictive role applies to all of them.
void add_role(const SlotUse& use, SlotName& name) {
  if (use.role != SlotRole::kByName && name.role == SlotRole::kByName) {
    name.role = use.role;
  }
  name.transposed = name.transposed || use.transposed;
}

void name_slots(MappingTask& task) {
  const NameSet user_inputs(task.options.inputs.begin(), task.options.inputs.end());
  const NameSet keep(task.options.keep.begin(), task.options.keep.end());
  const bool with_origins = states_origins(task.graph);
  const std::vector<Slot>& slots = task.graph.slots;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    SlotUse use = use_of(slots[i], with_origins);
    if (!user_inputs.empty() && user_inputs.contains(slots[i].name)) {
      use.role = SlotRole::kCallers;
    } else if (!keep.empty() && keep.contains(slots[i].name)) {
      use.role = SlotRole::kKept;
    }
    const std::uint32_t first = task.slot_by_name.add(i);
    if (first == i) {
      task.name_of_slot.push_back(static_cast<std::uint32_t>(task.slot_names.size()));
      SlotName& added = task.slot_names.emplace_back();
      added.name = without_wrappers(use.name, task);
      added.refined = refined(added.name, task);
    } else {
      task.name_of_slot.push_back(task.name_of_slot[first]);
    }
    add_role(use, task.slot_names[task.name_of_slot[i]]);
  }
}

// Finds folded copies of weights that also have slots of their own, and folded copies of the same
// weight. The rules fill the first slot, and the others follow it.
void find_folded_copies(MappingTask& task) {
  NameMap<std::uint32_t> first;
  const auto is_folded = [](const SlotName& name) {
    return name.transposed && name.role == SlotRole::kByName;
  };
  if (std::none_of(task.slot_names.begin(), task.slot_names.end(), is_folded)) {
    return;
  }
  for (const bool folded : {false, true}) {
    for (std::uint32_t i = 0; i < task.slot_names.size(); ++i) {
      SlotName& name = task.slot_names[i];
      if (name.role != SlotRole::kByName || is_folded(name) != folded) {
        continue;
      }
      const auto [weight, fresh] = first.emplace(name.name, i);
      if (!fresh) {
        name.open = false;
        task.folded_copies.push_back({weight->second, i});
      }
    }
  }
  std::sort(task.folded_copies.begin(), task.folded_copies.end(),
            [](const FoldedCopy& a, const FoldedCopy& b) {
              return std::pair(a.weight, a.copy) < std::pair(b.weight, b.copy);
            });
}

Status list_slots(MappingTask& task) {
  TRY(check_inputs(task));
  const std::vector<Slot>& slots = task.graph.slots;
  task.slot_by_name = NameIndexSet(
      [&slots](std::uint32_t place) { return std::string_view(slots[place].name); }, slots.size());
  task.slot_names.reserve(slots.size());
  task.name_of_slot.reserve(slots.size());
  name_slots(task);
  TRY(check_kept(task));
  group_slots(task);
  share_types(task);
  for (SlotName& name : task.slot_names) {
    name.open = name.role == SlotRole::kByName || name.role == SlotRole::kKept;
  }
  find_folded_copies(task);
  return {};
}

}  // namespace

void MappingTask::use(std::uint32_t key) {
  if (key_used[key]) {
    return;
  }
  key_used[key] = true;
  for (const std::uint32_t part : keys.keys[key].made_of) {
    use(part);  // not deeper than kMaxDerivedDepth
  }
}

void MappingTask::fill(std::uint32_t slot_name, std::uint32_t key, Rule rule,
                       const Recipe& recipe) {
  use(key);
  SlotName& name = slot_names[slot_name];
  name.open = false;
  if (name.role == SlotRole::kKept) {
    return;
  }
  for (const std::uint32_t slot : name.slots) {
    fills[slot] = Fill{key, rule, recipe};
  }
  // A transposed copy is its weight transposed once more. This also holds for a copy of a copy.
  const Recipe turned = name.transposed ? recipe : turned_once_more(recipe);
  auto copy =
      std::lower_bound(folded_copies.begin(), folded_copies.end(), slot_name,
                       [](const FoldedCopy& a, std::uint32_t weight) { return a.weight < weight; });
  for (; copy != folded_copies.end() && copy->weight == slot_name; ++copy) {
    for (const std::uint32_t slot : slot_names[copy->copy].slots) {
      if (agrees(*this, graph.slots[slot], keys.keys[key], turned)) {
        fills[slot] = Fill{key, rule, turned};
      }
    }
  }
}

Result<MappingTask> make_task(const GraphFacts& graph, const MappingKeys& keys,
                              const MappingOptions& options) {
  MappingTask task{graph, keys, options, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  task.fills.resize(graph.slots.size());
  task.key_used.resize(keys.keys.size());
  TRY(list_keys(task));
  TRY(list_slots(task));
  respell_weight_norm(task);
  return task;
}

namespace {

bool type_agrees(std::int32_t elem_type, const MappingKey& key, Casts casts) {
  if (elem_type == 0 || elem_type == onnx_data_type(key.dtype)) {
    return true;
  }
  const auto target = dtype_from_onnx(elem_type);
  return casts == Casts::kAllow && can_cast_from(key.dtype) && target && can_cast_to(*target);
}

// True if the shape broadcasts to the limit, dimension by dimension from the last.
bool broadcasts_to(const Shape& shape, const SymbolicShape& limit) {
  return shape.size() <= limit.size() &&
         std::equal(shape.rbegin(), shape.rend(), limit.rbegin(),
                    [](std::int64_t size, const std::optional<std::int64_t>& dim) {
                      return size == 1 || !dim || *dim == size;
                    });
}

bool dims_agree(const SymbolicShape& wanted, const Shape& shape) {
  return std::equal(wanted.begin(), wanted.end(), shape.begin(), shape.end(),
                    [](const std::optional<std::int64_t>& dim, std::int64_t size) {
                      return !dim || *dim == size;
                    });
}

bool shape_agrees(const Slot& slot, const Shape& shape) {
  return slot.shape ? dims_agree(*slot.shape, shape)
                    : !slot.broadcast_limit || broadcasts_to(shape, *slot.broadcast_limit);
}

bool agrees_with_all(const SharedType& type, const MappingKey& key, const Shape& shape,
                     Casts casts) {
  return type.possible &&
         std::all_of(type.elem_types.begin(), type.elem_types.end(),
                     [&](std::int32_t elem_type) { return type_agrees(elem_type, key, casts); }) &&
         (!type.shape || dims_agree(*type.shape, shape)) &&
         (!type.broadcast_limit || broadcasts_to(shape, *type.broadcast_limit));
}

Casts casts_of(const MappingTask& task, const Recipe& recipe) {
  return ends_with_cast(recipe) ? Casts::kAllow : task.options.casts;
}

}  // namespace

bool agrees(const MappingTask& task, const Slot& slot, const MappingKey& key,
            const Recipe& recipe) {
  if (!type_agrees(slot.elem_type, key, casts_of(task, recipe))) {
    return false;
  }
  if (recipe.empty()) {
    return shape_agrees(slot, key.shape);
  }
  const auto made = apply_recipe(recipe, key.shape);
  return made && shape_agrees(slot, *made);
}

bool agrees_once_cast(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key) {
  const std::span<const std::uint32_t> slots = task.slot_names[slot_name].slots;
  const auto made = apply_recipe(task.recipe_of(slot_name), task.keys.keys[key].shape);
  return made && !agrees(task, slot_name, key) &&
         std::all_of(slots.begin(), slots.end(), [&](std::uint32_t slot) {
           const Slot& wanted = task.graph.slots[slot];
           return type_agrees(wanted.elem_type, task.keys.keys[key], Casts::kAllow) &&
                  shape_agrees(wanted, *made);
         });
}

bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key) {
  return agrees(task, slot_name, key, task.recipe_of(slot_name));
}

bool agrees(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key,
            const Recipe& recipe) {
  const SlotName& name = task.slot_names[slot_name];
  const MappingKey& wanted = task.keys.keys[key];
  if (name.type == nullptr) {
    return agrees(task, task.graph.slots[name.slots.front()], wanted, recipe);
  }
  const auto made = apply_recipe(recipe, wanted.shape);
  return made && agrees_with_all(*name.type, wanted, *made, casts_of(task, recipe));
}

std::string clash_text(const MappingTask& task, std::uint32_t slot_name, std::uint32_t key,
                       const Recipe& recipe) {
  const std::span<const std::uint32_t> slots = task.slot_names[slot_name].slots;
  const auto clashing = std::find_if(slots.begin(), slots.end(), [&](std::uint32_t slot) {
    return !agrees(task, task.graph.slots[slot], task.keys.keys[key], recipe);
  });
  const Slot& slot = task.graph.slots[clashing != slots.end() ? *clashing : slots.front()];
  return "slot " + quote(slot.name) + " is " + form_of(slot) + ", but key " +
         quote(task.keys.keys[key].name) + " is " + form_of(task.keys.keys[key]) +
         (recipe.empty() ? "" : ", before " + recipe_text(recipe));
}

Shape shape_or(const SymbolicShape& shape, std::int64_t unknown) {
  Shape dims;
  for (const std::optional<std::int64_t>& dim : shape) {
    dims.push_back(dim.value_or(unknown));
  }
  return dims;
}

std::string form_of(const Slot& slot) {
  std::string form = slot.elem_type != 0 ? std::string(onnx_type_name(slot.elem_type)) + " " : "";
  if (!slot.shape) {
    return form + "of unknown shape";
  }
  std::string dims;
  for (const std::optional<std::int64_t>& dim : *slot.shape) {
    dims += (dims.empty() ? "" : ", ") + (dim ? std::to_string(*dim) : "?");
  }
  return form + "[" + dims + "]";
}

std::string form_of(const MappingKey& key) {
  const std::int32_t type = onnx_data_type(key.dtype);
  const std::string_view name = type != 0 ? onnx_type_name(type) : torch_name(key.dtype);
  return std::string(name) + " " + shape_text(key.shape);
}

}  // namespace onnx_external
