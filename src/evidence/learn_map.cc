// The rules of learn.h, slot by slot, and then key by key.
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "evidence/contents.h"
#include "evidence/fresh_values.h"
#include "evidence/learn_refusals.h"
#include "evidence/learn_task.h"
#include "evidence/name_proof.h"
#include "mapping/folded_sources.h"
#include "mapping/slot_roles.h"
#include "onnx/graph_facts.h"
#include "onnx_external/learn.h"

namespace onnx_external {
namespace {

// Integers of fewer elements are axes, shapes and counters as often as weights.
constexpr std::uint64_t kMinTellingIntegers = 8;

// The maximum number of keys to name that may have been used to compute a value.
constexpr std::size_t kMaxNamedAsLost = 64;

// A key for a slot, and how it fits.
struct Choice {
  std::uint32_t key = 0;
  bool by_name = false;  // equal names
};

class Learner {
 public:
  Learner(LearnTask task, const Checkpoint& fresh)
      : task_(std::move(task)),
        fresh_(task_.old, fresh),
        folded_sources_(task_.graph),
        homed_(task_.given) {}

  Result<LearnedMap> learn(const Checkpoint& fresh, int threads, const ProgressFn& progress) {
    TRY_ASSIGN(contents_, find_contents({task_.model, task_.graph_tensors, task_.wanted, task_.old,
                                         task_.usable, fresh, threads, progress}));
    TRY(decide_slots());
    TRY(decide_slotless());
    TRY(decide_keys());
    refuse_shared();
    TRY(refuse_broken_ties());
    TRY(refusals_.status());
    return result();
  }

 private:
  // ---- slots

  struct Pair {
    std::uint32_t slot = 0;
    std::uint32_t key = 0;
    Recipe recipe = {};
    bool changed = false;  // in the new checkpoint
  };

  // Floats of the graph that match no key.
  struct Unknown {
    std::optional<std::uint32_t> slot;
    std::uint32_t tensor = 0;
  };

  Status decide_slots() {
    for (const std::uint32_t slot : task_.slots) {
      const std::uint32_t tensor = *task_.tensor_of_slot[slot];
      const Content* content = content_of(tensor);
      if (content == nullptr) {
        TRY(judge_computed(slot, tensor));
        continue;
      }
      found_any_ = true;
      TRY_ASSIGN(const auto choice, choose(slot, tensor, *content));
      TRY(settle_slot(slot, tensor, *content, choice));
    }
    return {};
  }

  // Values computed from keys stay correct as long as these keys do not change. Values that,
  // according to the exporter, were computed from no key are constants.
  Status judge_computed(std::uint32_t slot, std::uint32_t tensor) {
    const Slot& place = task_.graph.slots[slot];
    std::vector<std::uint32_t> sources;
    bool all_known = !place.folded_from.empty() || place.origin == SlotOrigin::kConstant ||
                     place.origin == SlotOrigin::kLocalBuffer;
    for (const std::string& name : place.folded_from) {
      const auto key = task_.key_of_refined.find(canonical_name(name));
      if (key != task_.key_of_refined.end()) {
        sources.push_back(key->second);
      } else {
        all_known = all_known && !folded_sources_.may_be_weight(name);
      }
    }
    TRY_ASSIGN(const std::vector<std::uint32_t> changed, changed_of(sources));
    if (!changed.empty()) {
      refusals_.add(ErrorKind::kLearnFolded, place, names_of(changed));
      mark_homed(changed);
      return {};
    }
    if (!all_known) {
      add_unknown({slot, tensor});
      return {};
    }
    kept_.insert(slot);
    for (const std::uint32_t key : sources) {
      if (!is_floating(task_.old.tensors()[key].dtype)) {  // these are decided one by one
        settle({&key, 1});
      }
    }
    return {};
  }

  [[nodiscard]] const Content* content_of(std::uint32_t tensor) const {
    const std::uint32_t place = contents_.of_tensor[tensor];
    if (place == Contents::kNone) {
      return nullptr;
    }
    const Content& content = contents_.all[place];
    return content.all.empty() ? nullptr : &content;
  }

  // The key whose bytes the slot holds, where bytes or names tell.
  Result<std::optional<Choice>> choose(std::uint32_t slot, std::uint32_t tensor,
                                       const Content& content) {
    const std::vector<std::uint32_t>& keys = content.all;
    const Slot& place = task_.graph.slots[slot];
    const auto named = task_.key_of_refined.find(canonical_name(place.name));
    if (named != task_.key_of_refined.end() &&
        std::binary_search(keys.begin(), keys.end(), named->second)) {
      return Choice{named->second, true};
    }
    const bool telling = is_telling(tensor, content);
    // The exporter states of which value this one is another form. It may be a function that does
    // not change one particular number, such as tanh of 0.
    if (telling && place.folded_from.size() == 1) {
      const auto source = task_.key_of_refined.find(canonical_name(place.folded_from.front()));
      if (source != task_.key_of_refined.end() && has(keys, source->second)) {
        return Choice{source->second, false};
      }
    }
    if (telling && keys.size() == 1) {
      return Choice{keys.front(), false};
    }
    if (const auto key = key_by_ending(place.name, keys, task_.names)) {
      return Choice{*key, false};
    }
    // A constant of the module may have the same number as its parameter.
    if (telling || content.holders == 1) {
      if (const auto key = key_by_module(module_of_node(task_.user_of(slot)), keys, task_.names)) {
        return Choice{*key, false};
      }
    }
    if (telling) {
      const auto known = all_equal_.find(&content);
      TRY_ASSIGN(auto same,
                 known != all_equal_.end() ? Result<bool>(known->second) : fresh_.all_equal(keys));
      all_equal_.emplace(&content, same);
      return same ? std::optional(Choice{keys.front(), false}) : std::nullopt;
    }
    return std::nullopt;
  }

  // Returns whether equal bytes cannot be a coincidence, because the data is neither one repeated
  // number nor a few small integers.
  [[nodiscard]] bool is_telling(std::uint32_t tensor, const Content& content) const {
    return !content.uniform && (onnx_is_floating(task_.graph_tensors[tensor].data_type()) ||
                                task_.elements_of(tensor) >= kMinTellingIntegers);
  }

  Status settle_slot(std::uint32_t slot, std::uint32_t tensor, const Content& content,
                     const std::optional<Choice>& choice) {
    TRY_ASSIGN(const auto changed,
               changed_of(choice ? std::vector<std::uint32_t>{choice->key} : content.all));
    if (!choice && !changed.empty()) {
      refusals_.add(
          is_telling(tensor, content) ? ErrorKind::kLearnEqualBytes : ErrorKind::kLearnCoincidence,
          task_.graph.slots[slot], names_of(changed));
      mark_homed(changed);
      return {};
    }
    if (!choice) {  // the data stays right whatever it is
      kept_.insert(slot);
      settle(content.all);
      return {};
    }
    return pair(slot, tensor, content, *choice, !changed.empty());
  }

  Status pair(std::uint32_t slot, std::uint32_t tensor, const Content& content,
              const Choice& choice, bool changed) {
    const Slot& place = task_.graph.slots[slot];
    const TensorView& key = task_.old.tensors()[choice.key];
    const Shape& dims = task_.graph_tensors[tensor].dims();
    const bool plain = key.shape == dims && has(content.keys, choice.key);
    const bool turned =
        has(content.turned, choice.key) || (!plain && key.shape.size() == 2 && dims.size() == 2 &&
                                            key.shape[0] == dims[1] && key.shape[1] == dims[0]);
    mark_homed({&choice.key, 1});
    found_changed_ = found_changed_ || (changed && is_telling(tensor, content));
    if (!changed && !plain && !turned) {  // another shape
      kept_.insert(slot);
      settled_.insert(choice.key);
      return {};
    }
    std::optional<ErrorKind> doubt;
    if (changed && !plain && !turned) {
      doubt = ErrorKind::kLearnReshaped;
    } else if (changed && may_be_merged(slot, tensor, choice)) {
      doubt = ErrorKind::kLearnMerged;
    } else if (changed && plain && turned && !choice.by_name) {
      TRY_ASSIGN(auto symmetric, fresh_.is_symmetric(choice.key));
      doubt = symmetric ? doubt : ErrorKind::kLearnSymmetric;
    }
    if (doubt) {
      refusals_.add(*doubt, place, {key.name});
      return {};
    }
    if (fresh_.lacks(choice.key)) {
      refusals_.add(ErrorKind::kLearnLacking, place, {key.name});
      return {};
    }
    const bool cast = task_.graph_tensors[tensor].data_type() != onnx_data_type(key.dtype);
    pairs_.push_back({slot, choice.key,
                      with_cast(plain ? Recipe{} : Recipe{RecipeStep::transpose()}, cast),
                      changed});
    paired_.insert(choice.key);
    return {};
  }

  // Slots of the same name (in two branches) are filled together, and an Identity that remains has
  // the value of its input.
  void refuse_shared() {
    NameMap<const Pair*> by_name;
    std::set<std::uint32_t> replaced;  // of task_.graph_tensors
    for (const Pair& pair : pairs_) {
      const Slot& slot = task_.graph.slots[pair.slot];
      const auto [first, fresh] = by_name.emplace(slot.name, &pair);
      if (!fresh && (first->second->key != pair.key || first->second->recipe != pair.recipe)) {
        refusals_.add(ErrorKind::kLearnSeveralSlots, slot, {std::string(task_.names[pair.key])});
      }
      if (pair.changed) {
        replaced.insert(*task_.tensor_of_slot[pair.slot]);
      }
    }
    for (const std::uint32_t slot : kept_) {
      const auto duplicate = by_name.find(task_.graph.slots[slot].name);
      if (replaced.contains(*task_.tensor_of_slot[slot]) ||
          (duplicate != by_name.end() && duplicate->second->changed)) {
        refusals_.add(ErrorKind::kLearnSeveralSlots, task_.graph.slots[slot], {});
      }
    }
  }

  // Keys that share bytes in the old file are one parameter of the module, with one value: if their
  // values differed, torch would take the last one for all names.
  Status refuse_broken_ties() {
    BytesIds ids(task_.old.storages());
    std::map<std::optional<std::size_t>, const Pair*> first_of;
    for (const Pair& pair : pairs_) {
      const auto id = ids.id_of(task_.old.tensors()[pair.key]);  // one that is paired has bytes
      const Pair& first = *first_of.emplace(id, &pair).first->second;
      if (first.key == pair.key) {
        continue;
      }
      const std::vector<std::uint32_t> keys{first.key, pair.key};
      TRY_ASSIGN(const auto same, fresh_.all_equal(keys));
      if (!same) {
        refusals_.add(ErrorKind::kLearnEqualBytes, task_.graph.slots[pair.slot], names_of(keys));
      }
    }
    return {};
  }

  // torch's own exporter gives a merged weight an Identity, so a name there is one weight alone.
  [[nodiscard]] bool may_be_merged(std::uint32_t slot, std::uint32_t tensor,
                                   const Choice& choice) const {
    return task_.readers[slot] > 1 && task_.elements_of(tensor) <= kMaxMergedElements &&
           !(choice.by_name && task_.has_identities(slot));
  }

  void add_unknown(const Unknown& unknown) {
    if (onnx_is_floating(task_.graph_tensors[unknown.tensor].data_type())) {
      unknown_.push_back(unknown);
    }
  }

  // ---- data in attributes of nodes and the like, which nothing can replace

  Status decide_slotless() {
    for (std::uint32_t tensor = 0; tensor < task_.graph_tensors.size(); ++tensor) {
      if (!task_.wanted[tensor] || task_.has_slot[tensor]) {
        continue;
      }
      const Content* content = content_of(tensor);
      if (content == nullptr) {
        add_unknown({std::nullopt, tensor});
        continue;
      }
      const std::vector<std::uint32_t>& keys = content->all;
      if (!is_telling(tensor, *content)) {  // a number that many constants have is theirs,
        for (const std::uint32_t key : keys) {
          simple_in_nodes_.emplace(key, tensor);  // unless the key is nowhere else
        }
        keep_in_node(tensor);
        continue;
      }
      TRY_ASSIGN(auto changed, changed_of(keys));
      mark_homed(keys);
      found_any_ = true;
      if (changed.empty()) {
        settle(keys);
        keep_in_node(tensor);
      } else {
        refusals_.add(ErrorKind::kLearnAttribute, task_.graph_tensors[tensor], names_of(changed));
      }
    }
    return {};
  }

  Result<std::vector<std::uint32_t>> changed_of(const std::vector<std::uint32_t>& keys) {
    std::vector<std::uint32_t> changed;
    for (const std::uint32_t key : keys) {
      TRY_ASSIGN(auto same, fresh_.unchanged(key));
      if (!same) {
        changed.push_back(key);
      }
    }
    return changed;
  }

  // ---- keys that no slot has

  Status decide_keys() {
    std::vector<std::uint32_t> lost;
    const std::set<std::uint32_t> shared = keys_of_shared_slots();
    for (std::uint32_t key = 0; key < task_.old.tensors().size(); ++key) {
      if (!task_.usable[key] || homed_[key] || !is_floating(task_.old.tensors()[key].dtype) ||
          task_.meets_open_slot(key)) {
        continue;
      }
      auto same = fresh_.unchanged(key);
      TRY_ASSIGN(auto tied, same && !*same ? is_tied(key) : same);
      const auto simple = simple_in_nodes_.find(key);
      if (*same) {
        settle({&key, 1});
        missing_sizes_.insert(task_.elements_of_key(key));
      } else if (!tied && simple != simple_in_nodes_.end()) {
        refusals_.add(ErrorKind::kLearnAttribute, task_.graph_tensors[simple->second],
                      {std::string(task_.names[key])});
      } else if (!tied && shared.contains(key)) {
        refusals_.add_key(ErrorKind::kLearnShared, task_.names[key]);
      } else if (!tied) {
        lost.push_back(key);
      }
    }
    if (!found_any_) {
      return fail(ErrorCode::kNotFound,
                  "the graph contains no data of the old checkpoint; pass the checkpoint that it "
                  "was exported from");
    }
    return judge_unknown(lost);
  }

  // Returns whether another key has a slot and has the same bytes as this key in both checkpoints.
  Result<bool> is_tied(std::uint32_t key) {
    if (content_of_key_.empty()) {
      for (const Content& content : contents_.all) {
        for (const std::uint32_t each : content.keys) {
          content_of_key_.emplace(each, &content);
        }
      }
    }
    const auto content = content_of_key_.find(key);
    if (content == content_of_key_.end()) {
      return false;
    }
    for (const std::uint32_t other : content->second->keys) {
      const std::array<std::uint32_t, 2> both = {key, other};
      auto same = paired_.contains(other) ? fresh_.all_equal(both) : Result<bool>(false);
      if (!same || *same) {
        return same;
      }
    }
    return false;
  }

  // Keys whose bytes are those of a slot that several nodes use: the exporter may have merged them.
  [[nodiscard]] std::set<std::uint32_t> keys_of_shared_slots() const {
    std::set<std::uint32_t> keys;
    for (const std::uint32_t slot : task_.slots) {
      const Content* content = content_of(*task_.tensor_of_slot[slot]);
      if (content != nullptr && task_.readers[slot] > 1) {
        keys.insert(content->all.begin(), content->all.end());
      }
    }
    return keys;
  }

  // Data that matches no key may have been computed from keys that are not in the graph. It is a
  // constant only if that is impossible.
  Status judge_unknown(const std::vector<std::uint32_t>& lost) {
    const bool one_is_lost = std::any_of(lost.begin(), lost.end(), [&](std::uint32_t key) {
      return task_.elements_of_key(key) == 1;
    });
    std::set<std::uint64_t> changed_sizes;
    for (const std::uint32_t key : paired_) {
      TRY_ASSIGN(auto same, fresh_.unchanged(key));
      if (!same && task_.elements_of_key(key) > 1) {
        changed_sizes.insert(task_.elements_of_key(key));
      }
    }
    const std::vector<std::string> named = names_of(
        {lost.begin(),
         lost.begin() + static_cast<std::ptrdiff_t>(std::min(lost.size(), kMaxNamedAsLost))});
    for (const Unknown& unknown : unknown_) {
      const std::uint64_t elements = task_.elements_of(unknown.tensor);
      const bool uniform = is_uniform(unknown.tensor);
      // Data in nodes is usually constant, especially if it is one repeated number.
      const bool made_of_lost =
          elements > 1 ? !lost.empty() && (unknown.slot || !uniform) : one_is_lost;
      if (made_of_lost) {
        refuse(ErrorKind::kLearnComputed, unknown, named);
      } else if (elements > 1 && !found_changed_ && missing_sizes_.contains(elements)) {
        refuse(ErrorKind::kLearnOtherModel, unknown, {});
      } else if (changed_sizes.contains(elements) && !uniform) {
        refuse(ErrorKind::kLearnLikeChanged, unknown, {});
      } else if (unknown.slot) {
        kept_.insert(*unknown.slot);
      } else {
        keep_in_node(unknown.tensor);
      }
    }
    // If the exporter records the origin of each value, and none comes from these keys, the graph
    // does not use them (torch's exporters drop an unused parameter). This does not apply to a key
    // of one repeated number: optimizers remove a multiplication by 1 and an addition of 0 without
    // a trace.
    if (!states_origins(task_.graph)) {
      return {};
    }
    for (const std::uint32_t key : lost) {
      TRY_ASSIGN(const bool uniform, fresh_.was_uniform(key));
      if (!uniform) {
        settle({&key, 1});
      }
    }
    return {};
  }

  void keep_in_node(std::uint32_t index) {
    const GraphTensor& tensor = task_.graph_tensors[index];
    if (tensor.place() == TensorPlace::kAttribute && tensor.shown_name() != tensor.name() &&
        onnx_is_floating(tensor.data_type()) && task_.elements_of(index) > 1) {
      kept_in_nodes_.emplace_back(tensor.shown_name());
    }
  }

  void refuse(ErrorKind doubt, const Unknown& unknown, std::vector<std::string> keys) {
    if (unknown.slot) {
      refusals_.add(doubt, task_.graph.slots[*unknown.slot], std::move(keys));
    } else {
      refusals_.add(doubt, task_.graph_tensors[unknown.tensor], std::move(keys));
    }
  }

  // ---- small questions

  [[nodiscard]] static bool has(const std::vector<std::uint32_t>& keys, std::uint32_t key) {
    return std::binary_search(keys.begin(), keys.end(), key);
  }
  [[nodiscard]] bool is_uniform(std::uint32_t tensor) const {
    const std::uint32_t place = contents_.of_tensor[tensor];
    return place != Contents::kNone && contents_.all[place].uniform;
  }
  [[nodiscard]] std::vector<std::string> names_of(const std::vector<std::uint32_t>& keys) const {
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const std::uint32_t key : keys) {
      names.emplace_back(task_.names[key]);
    }
    return names;
  }
  void mark_homed(std::span<const std::uint32_t> keys) {
    for (const std::uint32_t key : keys) {
      if (!homed_[key]) {
        homed_[key] = true;
        mark_homed(task_.old.made_of(key));  // a derived key speaks for those that it is made of
      }
    }
  }
  void settle(std::span<const std::uint32_t> keys) {
    mark_homed(keys);
    settled_.insert(keys.begin(), keys.end());
  }

  LearnedMap result() {
    LearnedMap learned;
    for (const Pair& pair : pairs_) {
      learned.map.push_back(
          {task_.graph.slots[pair.slot].name, std::string(fresh_.name_of(pair.key)), pair.recipe});
    }
    for (const std::uint32_t slot : kept_) {
      if (task_.graph.slots[slot].kind == SlotKind::kInitializer) {
        learned.constants.push_back(task_.graph.slots[slot].name);
      }
    }
    learned.constants.insert(learned.constants.end(), kept_in_nodes_.begin(), kept_in_nodes_.end());
    for (const std::uint32_t key : settled_) {
      if (!paired_.contains(key) && !fresh_.lacks(key)) {
        learned.settled.emplace_back(fresh_.name_of(key));
      }
    }
    return learned;
  }

  LearnTask task_;
  FreshValues fresh_;
  FoldedSources folded_sources_;
  std::vector<bool> homed_;  // of the old keys: it is known what becomes of them
  Contents contents_;
  std::map<const Content*, bool> all_equal_;  // in the new checkpoint
  std::map<std::uint32_t, const Content*> content_of_key_;
  std::map<std::uint32_t, std::uint32_t> simple_in_nodes_;  // key -> index into graph_tensors
  bool found_any_ = false;
  bool found_changed_ = false;             // a telling tensor that changes
  std::set<std::uint64_t> missing_sizes_;  // sizes of unchanged keys that are not in the graph
  std::vector<Unknown> unknown_;
  std::set<std::uint32_t> kept_;  // slots
  std::vector<std::string> kept_in_nodes_;
  std::set<std::uint32_t> paired_;   // keys
  std::set<std::uint32_t> settled_;  // keys
  LearnRefusals refusals_;
  std::vector<Pair> pairs_;
};

}  // namespace

Result<LearnedMap> learn_map(const Model& model, const Checkpoint& old, const Checkpoint& fresh,
                             const MappingOptions& options, int threads,
                             const ProgressFn& progress) {
  TRY_ASSIGN(auto task, make_learn_task(model, old, options));
  return Learner(std::move(task), fresh).learn(fresh, threads, progress);
}

MappingOptions with_learned(MappingOptions options, const LearnedMap& learned) {
  options.learned.insert(options.learned.end(), learned.map.begin(), learned.map.end());
  options.keep.insert(options.keep.end(), learned.constants.begin(), learned.constants.end());
  for (const std::string& key : learned.settled) {
    options.ignore.push_back("^" + RE2::QuoteMeta(key) + "$");
  }
  return options;
}

}  // namespace onnx_external
