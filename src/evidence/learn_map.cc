// The rules of learn.h, slot by slot, and then key by key.
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "evidence/contents.h"
#include "evidence/fresh_values.h"
#include "evidence/held_tensors.h"
#include "evidence/learn_refusals.h"
#include "evidence/name_proof.h"
#include "mapping/name_refinement.h"
#include "onnx_external/learn.h"

namespace onnx_external {
namespace {

// Integers of fewer elements are axes, shapes and counters as often as weights.
constexpr std::uint64_t kMinTellingIntegers = 8;

// A key for a slot, and how it fits.
struct Choice {
  std::uint32_t key = 0;
  bool by_name = false;  // equal names
};

class Learner {
 public:
  Learner(const Model& model, const Checkpoint& old, const Checkpoint& fresh,
          const MappingOptions& options)
      : model_(model),
        graph_(model.facts()),
        old_(old),
        fresh_(old, fresh),
        options_(options),
        held_(held_tensors(model)),
        held_of_slot_(held_by_slots(graph_, held_)) {}

  Result<LearnedMap> learn(int threads, const ProgressFn& progress) {
    if (Status status = list_keys(); !status) {
      return fail(std::move(status).error());
    }
    list_slots();
    auto contents = find_contents({model_, held_, wanted_, old_, usable_, threads, progress});
    if (!contents) {
      return fail(std::move(contents).error());
    }
    contents_ = *std::move(contents);
    Status status = decide_slots();
    status = status ? decide_slotless() : std::move(status);
    status = status ? decide_keys() : std::move(status);
    refuse_twins();
    status = status ? refusals_.status() : std::move(status);
    if (!status) {
      return fail(std::move(status).error());
    }
    return result();
  }

 private:
  // ---- what takes part

  Status list_keys() {
    const std::vector<TensorView>& tensors = old_.tensors();
    std::vector<std::unique_ptr<RE2>> ignored;
    RE2::Options quiet;
    quiet.set_log_errors(false);
    for (const std::string& pattern : options_.ignore) {
      ignored.push_back(std::make_unique<RE2>(pattern, quiet));
      if (!ignored.back()->ok()) {
        return fail(ErrorCode::kInvalidArgument,
                    "ignore " + quote(pattern) + ": " + ignored.back()->error());
      }
    }
    key_of_refined_.reserve(tensors.size());
    for (std::uint32_t key = 0; key < tensors.size(); ++key) {
      const std::string_view name = tensors[key].name;
      names_.push_back(name);
      usable_.push_back((!options_.prefix || name.starts_with(*options_.prefix)) &&
                        std::none_of(ignored.begin(), ignored.end(), [&](const auto& pattern) {
                          return RE2::PartialMatch(name, *pattern);
                        }));
      key_of_refined_.emplace(canonical_name(name), key);
    }
    homed_.assign(tensors.size(), false);
    NameSet given;
    for (const MapEntry& entry : options_.map) {
      given.insert(entry.key);
    }
    for (const auto& [slot, key] : options_.ties) {
      given.insert(key);
    }
    for (std::uint32_t key = 0; key < tensors.size(); ++key) {
      homed_[key] = given.contains(names_[key]);
    }
    return {};
  }

  // Slots that the options leave alone are not looked at; nor is their data, unless others have it.
  void list_slots() {
    NameSet left_alone(options_.keep.begin(), options_.keep.end());
    for (const MapEntry& entry : options_.map) {
      left_alone.insert(entry.slot);
    }
    for (const auto& [slot, key] : options_.ties) {
      left_alone.insert(slot);
    }
    wanted_.assign(held_.size(), false);
    has_slot_.assign(held_.size(), false);
    for (std::uint32_t slot = 0; slot < graph_.slots.size(); ++slot) {
      if (held_of_slot_[slot]) {
        has_slot_[*held_of_slot_[slot]] = true;
        const bool wanted =
            !left_alone.contains(graph_.slots[slot].name) && tells(*held_of_slot_[slot]);
        if (wanted) {
          slots_.push_back(slot);
          wanted_[*held_of_slot_[slot]] = true;
        }
      }
    }
    for (std::uint32_t i = 0; i < held_.size(); ++i) {
      wanted_[i] =
          wanted_[i] || (!has_slot_[i] && !left_alone.contains(held_[i].name()) && tells(i));
    }
    list_readers();
    list_open_slots();
  }

  // One number alone is a shape or a counter, unless it is a fraction.
  [[nodiscard]] bool tells(std::uint32_t held) const {
    return onnx_is_floating(held_[held].data_type()) || elements_of(held) > 1;
  }

  // Which nodes use a slot, and how many, those Identity nodes left out that are slots themselves.
  void list_readers() {
    NameMap<std::uint64_t> merged;
    NameSet identities;
    for (const Slot& slot : graph_.slots) {
      if (slot.kind == SlotKind::kIdentityOutput) {
        ++merged[slot.merged_into];
        identities.insert(slot.name);
      }
    }
    for (const Slot& slot : graph_.slots) {
      const auto found = merged.find(slot.name);
      const std::uint64_t less = found == merged.end() ? 0 : found->second;
      readers_.push_back(slot.consumer_count - std::min<std::uint64_t>(less, slot.consumer_count));
    }
    for (const onnx::NodeProto& node : model_.proto().graph().node()) {
      const bool is_slot = node.output_size() == 1 && identities.contains(node.output(0));
      for (int i = 0; !is_slot && i < node.input_size(); ++i) {
        users_.emplace(node.input(i), node.name());
      }
    }
  }

  // The only node that uses the slot; "" where there are others, or it is in a subgraph.
  [[nodiscard]] std::string_view user_of(std::uint32_t slot) const {
    const auto user = users_.find(graph_.slots[slot].name);
    const bool is_one = readers_[slot] == 1 && graph_.slots[slot].graph == 0;
    return is_one && user != users_.end() ? user->second : std::string_view();
  }

  // ---- slots

  struct Pair {
    std::uint32_t slot = 0;
    std::uint32_t key = 0;
    Recipe recipe = {};
    bool changed = false;  // in the new checkpoint
  };

  // Floats of the graph that are no key's.
  struct Unknown {
    std::optional<std::uint32_t> slot;
    std::uint32_t held = 0;
  };

  Status decide_slots() {
    for (const std::uint32_t slot : slots_) {
      const std::uint32_t held = *held_of_slot_[slot];
      const Content* content = content_of(held);
      if (content == nullptr) {
        add_unknown({slot, held});
        continue;
      }
      found_any_ = true;
      Result<std::optional<Choice>> choice = choose(slot, held, *content);
      Status status = choice ? settle_slot(slot, held, *content, *choice)
                             : Status(fail(std::move(choice).error()));
      if (!status) {
        return status;
      }
    }
    return {};
  }

  [[nodiscard]] const Content* content_of(std::uint32_t held) const {
    const std::uint32_t place = contents_.of_held[held];
    if (place == Contents::kNone) {
      return nullptr;
    }
    const Content& content = contents_.all[place];
    return content.keys.empty() && content.turned.empty() ? nullptr : &content;
  }

  static std::vector<std::uint32_t> candidates(const Content& content) {
    std::vector<std::uint32_t> keys = content.keys;
    keys.insert(keys.end(), content.turned.begin(), content.turned.end());
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  // The key whose bytes the slot holds, where bytes or names tell.
  Result<std::optional<Choice>> choose(std::uint32_t slot, std::uint32_t held,
                                       const Content& content) {
    const std::vector<std::uint32_t> keys = candidates(content);
    const Slot& place = graph_.slots[slot];
    const auto named = key_of_refined_.find(canonical_name(place.name));
    if (named != key_of_refined_.end() &&
        std::binary_search(keys.begin(), keys.end(), named->second)) {
      return Choice{named->second, true};
    }
    const bool telling = is_telling(held, content);
    if (telling && keys.size() == 1) {
      return Choice{keys.front(), false};
    }
    if (const auto key = key_by_ending(place.name, keys, names_)) {
      return Choice{*key, false};
    }
    // A constant of the module may have the same number as its parameter.
    if (telling || content.holders == 1) {
      if (const auto key = key_by_module(module_of_node(user_of(slot)), keys, names_)) {
        return Choice{*key, false};
      }
    }
    if (telling) {
      auto same = fresh_.all_equal(keys);
      if (!same) {
        return fail(std::move(same).error());
      }
      return *same ? std::optional(Choice{keys.front(), false}) : std::nullopt;
    }
    return std::nullopt;
  }

  // Whether equal bytes are no coincidence: not one number over and over, nor a few small integers.
  [[nodiscard]] bool is_telling(std::uint32_t held, const Content& content) const {
    return !content.uniform &&
           (onnx_is_floating(held_[held].data_type()) || elements_of(held) >= kMinTellingIntegers);
  }

  Status settle_slot(std::uint32_t slot, std::uint32_t held, const Content& content,
                     const std::optional<Choice>& choice) {
    auto differing =
        changed_of(choice ? std::vector<std::uint32_t>{choice->key} : candidates(content));
    if (!differing) {
      return fail(std::move(differing).error());
    }
    const std::vector<std::uint32_t>& changed = *differing;
    if (!choice && !changed.empty()) {
      refusals_.add(is_telling(held, content) ? Doubt::kEqualBytes : Doubt::kCoincidence,
                    graph_.slots[slot], names_of(changed));
      mark_homed(changed);
      return {};
    }
    if (!choice) {  // the data stays right, whatever it is
      kept_.insert(slot);
      settle(candidates(content));
      return {};
    }
    return pair(slot, held, content, *choice, !changed.empty());
  }

  Status pair(std::uint32_t slot, std::uint32_t held, const Content& content, const Choice& choice,
              bool changed) {
    const Slot& place = graph_.slots[slot];
    const TensorView& key = old_.tensors()[choice.key];
    const Shape& dims = held_[held].dims();
    const bool plain = key.shape == dims && has(content.keys, choice.key);
    const bool turned =
        has(content.turned, choice.key) || (!plain && key.shape.size() == 2 && dims.size() == 2 &&
                                            key.shape[0] == dims[1] && key.shape[1] == dims[0]);
    homed_[choice.key] = true;
    found_changed_ = found_changed_ || (changed && is_telling(held, content));
    if (!changed && !plain && !turned) {  // another shape
      kept_.insert(slot);
      return {};
    }
    std::optional<Doubt> doubt;
    if (changed && !plain && !turned) {
      doubt = Doubt::kReshaped;
    } else if (changed && may_be_merged(slot, held, choice)) {
      doubt = Doubt::kMerged;
    } else if (changed && plain && turned && !choice.by_name) {
      auto symmetric = fresh_.is_symmetric(choice.key);
      if (!symmetric) {
        return fail(std::move(symmetric).error());
      }
      doubt = *symmetric ? doubt : Doubt::kSymmetric;
    }
    if (doubt) {
      refusals_.add(*doubt, place, {key.name});
      return {};
    }
    if (fresh_.lacks(choice.key)) {
      refusals_.add(Doubt::kLacking, place, {key.name});
      return {};
    }
    pairs_.push_back(
        {slot, choice.key, plain ? Recipe{} : Recipe{RecipeStep::kTranspose}, changed});
    paired_.insert(choice.key);
    return {};
  }

  // Slots of one name (in two branches) are filled together, and an Identity that stays has the
  // value of what it reads.
  void refuse_twins() {
    NameMap<const Pair*> by_name;
    std::set<std::uint32_t> replaced;  // of held_
    for (const Pair& pair : pairs_) {
      const Slot& slot = graph_.slots[pair.slot];
      const auto [first, fresh] = by_name.emplace(slot.name, &pair);
      if (!fresh && (first->second->key != pair.key || first->second->recipe != pair.recipe)) {
        refusals_.add(Doubt::kTwins, slot, {std::string(names_[pair.key])});
      }
      if (pair.changed) {
        replaced.insert(*held_of_slot_[pair.slot]);
      }
    }
    for (const std::uint32_t slot : kept_) {
      const auto twin = by_name.find(graph_.slots[slot].name);
      if (replaced.contains(*held_of_slot_[slot]) ||
          (twin != by_name.end() && twin->second->changed)) {
        refusals_.add(Doubt::kTwins, graph_.slots[slot], {});
      }
    }
  }

  // torch's own exporter gives a merged weight an Identity, so a name there is one weight alone.
  [[nodiscard]] bool may_be_merged(std::uint32_t slot, std::uint32_t held,
                                   const Choice& choice) const {
    const onnx::ModelProto& proto = model_.proto();
    const auto user = users_.find(graph_.slots[slot].name);
    const bool has_identities = proto.producer_name() == "pytorch" &&
                                (proto.producer_version().starts_with("1.") ||
                                 (user != users_.end() && user->second.starts_with('/')));
    return readers_[slot] > 1 && elements_of(held) <= kMaxMergedElements &&
           !(choice.by_name && has_identities);
  }

  void add_unknown(const Unknown& unknown) {
    if (onnx_is_floating(held_[unknown.held].data_type())) {
      unknown_.push_back(unknown);
    }
  }

  // ---- data in attributes of nodes and the like, which nothing can replace

  Status decide_slotless() {
    for (std::uint32_t held = 0; held < held_.size(); ++held) {
      if (!wanted_[held] || has_slot_[held]) {
        continue;
      }
      const Content* content = content_of(held);
      if (content == nullptr) {
        add_unknown({std::nullopt, held});
        continue;
      }
      const std::vector<std::uint32_t> keys = candidates(*content);
      if (!is_telling(held, *content)) {  // a number that many constants have is theirs,
        for (const std::uint32_t key : keys) {
          simple_in_nodes_.emplace(key, held);  // unless the key is nowhere else
        }
        continue;
      }
      auto changed = changed_of(keys);
      if (!changed) {
        return fail(std::move(changed).error());
      }
      mark_homed(keys);
      found_any_ = true;
      if (changed->empty()) {
        settle(keys);
      } else {
        refusals_.add(Doubt::kAttribute, held_[held], names_of(*changed));
      }
    }
    return {};
  }

  Result<std::vector<std::uint32_t>> changed_of(const std::vector<std::uint32_t>& keys) {
    std::vector<std::uint32_t> changed;
    for (const std::uint32_t key : keys) {
      auto same = fresh_.unchanged(key);
      if (!same) {
        return fail(std::move(same).error());
      }
      if (!*same) {
        changed.push_back(key);
      }
    }
    return changed;
  }

  // ---- keys that no slot has

  Status decide_keys() {
    std::vector<std::uint32_t> lost;
    const std::set<std::uint32_t> shared = keys_of_shared_slots();
    for (std::uint32_t key = 0; key < old_.tensors().size(); ++key) {
      if (!usable_[key] || homed_[key] || !is_floating(old_.tensors()[key].dtype) ||
          meets_open_slot(key)) {
        continue;
      }
      auto same = fresh_.unchanged(key);
      auto tied = same && !*same ? is_tied(key) : same;
      if (!tied) {
        return fail(std::move(tied).error());
      }
      const auto simple = simple_in_nodes_.find(key);
      if (*same) {
        settle({&key, 1});
        missing_sizes_.insert(element_count_of_key(key));
      } else if (!*tied && simple != simple_in_nodes_.end()) {
        refusals_.add(Doubt::kAttribute, held_[simple->second], {std::string(names_[key])});
      } else if (!*tied && shared.contains(key)) {
        refusals_.add_key(Doubt::kShared, names_[key]);
      } else if (!*tied) {
        lost.push_back(key);
      }
    }
    if (!found_any_) {
      return fail(
          ErrorCode::kNotFound,
          "the graph holds no data of the old checkpoint; give the one that it was exported "
          "from");
    }
    return judge_unknown(lost);
  }

  // Whether a key with the same bytes, in both checkpoints, has a slot.
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
    for (const std::uint32_t slot : slots_) {
      const Content* content = content_of(*held_of_slot_[slot]);
      if (content != nullptr && readers_[slot] > 1) {
        keys.insert(content->keys.begin(), content->keys.end());
        keys.insert(content->turned.begin(), content->turned.end());
      }
    }
    return keys;
  }

  // A slot without data is filled by its name.
  [[nodiscard]] bool meets_open_slot(std::uint32_t key) const {
    const std::string name = canonical_name(names_[key]);
    const std::vector<std::size_t> places = refined_boundaries(name);
    return open_endings_.contains(name) ||
           std::any_of(places.begin(), places.end(),
                       [&](std::size_t place) { return open_names_.contains(name.substr(place)); });
  }

  void list_open_slots() {
    for (std::uint32_t slot = 0; slot < graph_.slots.size(); ++slot) {
      if (held_of_slot_[slot]) {
        continue;
      }
      const std::string name = canonical_name(graph_.slots[slot].name);
      open_names_.insert(name);
      open_endings_.insert(name);
      for (const std::size_t place : refined_boundaries(name)) {
        open_endings_.insert(name.substr(place));
      }
    }
  }

  // Data that is no key's may have been computed from keys that are nowhere in the graph; it is a
  // constant where that cannot be.
  Status judge_unknown(const std::vector<std::uint32_t>& lost) {
    const bool one_is_lost = std::any_of(lost.begin(), lost.end(), [&](std::uint32_t key) {
      return element_count_of_key(key) == 1;
    });
    std::set<std::uint64_t> changed_sizes;
    for (const std::uint32_t key : paired_) {
      auto same = fresh_.unchanged(key);
      if (!same) {
        return fail(std::move(same).error());
      }
      if (!*same && element_count_of_key(key) > 1) {
        changed_sizes.insert(element_count_of_key(key));
      }
    }
    for (const Unknown& unknown : unknown_) {
      const std::uint64_t elements = elements_of(unknown.held);
      const bool uniform = is_uniform(unknown.held);
      // In nodes stand as a rule constants, above all one number over and over.
      const bool made_of_lost =
          elements > 1 ? !lost.empty() && (unknown.slot || !uniform) : one_is_lost;
      if (made_of_lost) {
        refuse(Doubt::kComputed, unknown, names_of(lost));
      } else if (elements > 1 && !found_changed_ && missing_sizes_.contains(elements)) {
        refuse(Doubt::kOtherModel, unknown, {});
      } else if (changed_sizes.contains(elements) && !uniform) {
        refuse(Doubt::kLikeChanged, unknown, {});
      } else if (unknown.slot) {
        kept_.insert(*unknown.slot);
      }
    }
    return {};
  }

  void refuse(Doubt doubt, const Unknown& unknown, std::vector<std::string> keys) {
    if (unknown.slot) {
      refusals_.add(doubt, graph_.slots[*unknown.slot], std::move(keys));
    } else {
      refusals_.add(doubt, held_[unknown.held], std::move(keys));
    }
  }

  // ---- small questions

  [[nodiscard]] static bool has(const std::vector<std::uint32_t>& keys, std::uint32_t key) {
    return std::binary_search(keys.begin(), keys.end(), key);
  }
  [[nodiscard]] bool is_uniform(std::uint32_t held) const {
    const std::uint32_t place = contents_.of_held[held];
    return place != Contents::kNone && contents_.all[place].uniform;
  }
  [[nodiscard]] std::uint64_t elements_of(std::uint32_t held) const {
    return element_count(held_[held].dims()).value_or(0);
  }
  [[nodiscard]] std::uint64_t element_count_of_key(std::uint32_t key) const {
    return element_count(old_.tensors()[key].shape).value_or(0);
  }
  [[nodiscard]] std::vector<std::string> names_of(const std::vector<std::uint32_t>& keys) const {
    std::vector<std::string> names;
    for (const std::uint32_t key : keys) {
      names.emplace_back(names_[key]);
    }
    return names;
  }
  void mark_homed(std::span<const std::uint32_t> keys) {
    for (const std::uint32_t key : keys) {
      homed_[key] = true;
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
          {graph_.slots[pair.slot].name, std::string(names_[pair.key]), pair.recipe});
    }
    for (const std::uint32_t slot : kept_) {
      if (graph_.slots[slot].kind == SlotKind::kInitializer) {
        learned.constants.push_back(graph_.slots[slot].name);
      }
    }
    for (const std::uint32_t key : settled_) {
      if (!paired_.contains(key) && !fresh_.lacks(key)) {
        learned.settled.emplace_back(names_[key]);
      }
    }
    return learned;
  }

  const Model& model_;
  const GraphFacts& graph_;
  const Checkpoint& old_;
  FreshValues fresh_;
  const MappingOptions& options_;
  std::vector<HeldTensor> held_;
  std::vector<std::optional<std::uint32_t>> held_of_slot_;
  std::vector<bool> has_slot_;           // of held_
  std::vector<bool> wanted_;             // of held_
  std::vector<std::uint64_t> readers_;   // of slots
  NameMap<std::string_view> users_;      // of values: a node of the main graph
  std::vector<std::uint32_t> slots_;     // those that are looked at
  std::vector<std::string_view> names_;  // of the old keys
  std::vector<bool> usable_;             // of the old keys
  std::vector<bool> homed_;              // of the old keys: it is known what becomes of them
  OwnedNameMap<std::uint32_t> key_of_refined_;
  OwnedNameSet open_names_;    // of slots without data
  OwnedNameSet open_endings_;  // of these names, too
  Contents contents_;
  std::map<std::uint32_t, const Content*> content_of_key_;
  std::map<std::uint32_t, std::uint32_t> simple_in_nodes_;  // key -> held
  bool found_any_ = false;
  bool found_changed_ = false;             // a telling tensor that changes
  std::set<std::uint64_t> missing_sizes_;  // of keys that do not change and are nowhere
  std::vector<Unknown> unknown_;
  std::set<std::uint32_t> kept_;     // slots
  std::set<std::uint32_t> paired_;   // keys
  std::set<std::uint32_t> settled_;  // keys
  LearnRefusals refusals_;
  std::vector<Pair> pairs_;
};

}  // namespace

Result<LearnedMap> learn_map(const Model& model, const Checkpoint& old, const Checkpoint& fresh,
                             const MappingOptions& options, int threads,
                             const ProgressFn& progress) {
  return Learner(model, old, fresh, options).learn(threads, progress);
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
