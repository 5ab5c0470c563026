// Decides the verdicts on keys that fill no slot.
#include <re2/set.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/buffer_names.h"
#include "mapping/leftovers.h"
#include "mapping/name_refinement.h"
#include "mapping/node_modules.h"
#include "mapping/scale_keys.h"

namespace onnx_external {
namespace {

// The limit on pairs of tensors that are read to find copies of used ones; usual checkpoints have
// only a few.
constexpr std::size_t kMaxKeyComparisons = 4096;
constexpr std::size_t kMaxLikeKeys = 16;  // used keys of one form that are compared

// Counters are single integers; several may be a permutation or a table of indices.
bool is_counter(const MappingKey& key) {
  return !is_floating(key.dtype) && element_count(key.shape).value_or(0) <= 1;
}

bool is_empty(const Shape& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

class KeyJudge {
 public:
  KeyJudge(const MappingTask& task, const KeyPrefix& key_prefix, const MappingEvidence& evidence,
           Mapping& mapping)
      : task_(task), key_prefix_(key_prefix), evidence_(evidence), mapping_(mapping) {}

  Status judge() {
    const std::vector<bool>& used = task_.key_used;
    mapping_.keys.assign(used.size(), {});
    if (std::find(used.begin(), used.end(), false) == used.end()) {
      return {};
    }
    TRY(compile_ignored());
    list_used();
    std::vector<std::uint32_t> weights;
    for (std::uint32_t key = 0; key < used.size(); ++key) {
      if (!used[key]) {
        TRY(judge_one(key, weights));
      }
    }
    tie_modules(weights);
    judge_weights(weights);
    return {};
  }

 private:
  using Form = std::pair<DType, Shape>;

  Status compile_ignored() {
    ignored_ = std::make_unique<RE2::Set>(RE2::Quiet, RE2::UNANCHORED);
    std::string why;
    for (const std::string& expression : task_.options.ignore) {
      if (ignored_->Add(expression, &why) < 0) {
        return fail(ErrorCode::kInvalidArgument, "ignore " + quote(expression) + ": " + why);
      }
    }
    if (!task_.options.ignore.empty() && !ignored_->Compile()) {
      return fail(ErrorCode::kUnsupported, "ignore: the expressions take too much memory");
    }
    return {};
  }

  // Indexes the used keys by their bytes, their forms and their names.
  void list_used() {
    const std::vector<MappingKey>& keys = task_.keys.keys;
    for (std::uint32_t key = 0; key < keys.size(); ++key) {
      if (!task_.key_used[key]) {
        continue;
      }
      if (keys[key].bytes_id) {
        by_bytes_.emplace(*keys[key].bytes_id, key);
      }
      std::vector<std::uint32_t>& alike = by_form_[Form(keys[key].dtype, keys[key].shape)];
      if (alike.size() < kMaxLikeKeys) {
        alike.push_back(key);
      }
      used_names_.push_back(keys[key].name);
      if (const std::string_view module = module_of(keys[key].name);
          keys[key].name.substr(module.size()) == ".weight") {
        layers_.insert(module);
      }
    }
  }

  Status judge_one(std::uint32_t key, std::vector<std::uint32_t>& weights) {
    const MappingKey& left = task_.keys.keys[key];
    if (const auto tied = left.bytes_id ? by_bytes_.find(*left.bytes_id) : by_bytes_.end();
        tied != by_bytes_.end()) {
      tie(key, tied->second);
      return {};
    }
    KeyVerdict& verdict = mapping_.keys[key].verdict;
    if (!task_.key_names[key].usable) {
      verdict = KeyVerdict::kOutsidePrefix;
      return {};
    }
    if (!task_.options.ignore.empty() && ignored_->Match(left.name, nullptr)) {
      verdict = KeyVerdict::kIgnored;
      return {};
    }
    if (scale_keys().weight_of(key)) {
      verdict = KeyVerdict::kUnused;  // wherever it is: without it, the weight is another one
      return {};
    }
    // Weights of adapters are floats. A counter inside an adapter is sorted like any counter.
    if (!adapter_component(left.name).empty() && !is_counter(left)) {
      verdict = KeyVerdict::kAdapter;
      return {};
    }
    if (is_counter(left) || outside_prefix(key)) {
      verdict = KeyVerdict::kNonWeight;
      return {};
    }
    if (is_baked_buffer(left.name, left.shape)) {
      verdict = KeyVerdict::kBaked;
      return {};
    }
    if (is_empty(left.shape) || is_training_parameter(left.name)) {
      verdict = KeyVerdict::kNonWeight;
      return {};
    }
    TRY_ASSIGN(auto copy, find_copy(key));
    if (copy) {
      tie(key, *copy);
      tied_modules_.insert(without_shared_end(key, *copy));
    } else {
      weights.push_back(key);
    }
    return {};
  }

  void tie(std::uint32_t key, std::uint32_t used) {
    mapping_.keys[key] = {.verdict = KeyVerdict::kTied, .tied_to = used};
  }

  ScaleKeys& scale_keys() {
    if (!scale_keys_) {
      scale_keys_.emplace(task_, used_as_floats(task_));
    }
    return *scale_keys_;
  }

  // If one weight proves that a module occurs twice in the state dict, its other keys are ties as
  // well, even those whose equal bytes alone prove nothing.
  void tie_modules(std::vector<std::uint32_t>& weights) {
    std::erase_if(weights, [&](std::uint32_t key) {
      const auto [first, last] = alike_.equal_range(key);
      const auto tied = std::find_if(first, last, [&](const auto& alike) {
        return tied_modules_.contains(without_shared_end(key, alike.second));
      });
      if (tied != last) {
        tie(key, tied->second);
      }
      return tied != last;
    });
  }

  // Returns the two names without their common last components, which are the names of two modules.
  [[nodiscard]] std::pair<std::string_view, std::string_view> without_shared_end(
      std::uint32_t key, std::uint32_t other) const {
    std::string_view one = task_.keys.keys[key].name;
    std::string_view two = task_.keys.keys[other].name;
    while (!one.empty() && !two.empty()) {
      const std::string_view one_parent = module_of(one);
      const std::string_view two_parent = module_of(two);
      if (one.substr(one_parent.size()) != two.substr(two_parent.size())) {
        break;
      }
      one = one_parent;
      two = two_parent;
    }
    return {one, two};
  }

  // True for a key outside the prefix that was found and removed, which does not belong to the
  // graph.
  [[nodiscard]] bool outside_prefix(std::uint32_t key) const {
    return key_prefix_.kind == KeyPrefix::Kind::kRemove &&
           !task_.key_names[key].name.starts_with(key_prefix_.prefix);
  }

  // Finds a used key with the same bytes, which means that a tied weight was cloned. If all
  // elements are equal (zeros, ones), that proves nothing, unless several nodes use the slot: then
  // the exporter may have merged the two weights, and they are still equal.
  Result<std::optional<std::uint32_t>> find_copy(std::uint32_t key) {
    const MappingKey& left = task_.keys.keys[key];
    const auto alike = by_form_.find(Form(left.dtype, left.shape));
    if (alike == by_form_.end() || !evidence_.same_bytes) {
      return std::optional<std::uint32_t>();
    }
    for (const std::uint32_t other : alike->second) {
      if (++comparisons_ > kMaxKeyComparisons) {
        break;
      }
      TRY_ASSIGN(auto same, evidence_.same_bytes(key, other));
      if (!same) {
        continue;
      }
      TRY_ASSIGN(const auto uniform,
                 evidence_.key_is_uniform ? evidence_.key_is_uniform(key) : true);
      if (!uniform || is_shared(other)) {
        return std::optional(other);
      }
      alike_.emplace(key, other);
    }
    return std::optional<std::uint32_t>();
  }

  // Returns whether several nodes use a slot that the key fills.
  [[nodiscard]] bool is_shared(std::uint32_t key) {
    if (shared_.empty()) {
      shared_.resize(task_.keys.keys.size());
      for (std::size_t slot = 0; slot < task_.fills.size(); ++slot) {
        if (task_.fills[slot] && task_.graph.slots[slot].consumer_count > 1) {
          shared_[task_.fills[slot]->key] = true;
        }
      }
    }
    return shared_[key];
  }

  // The outermost module around the key without any used name; nullopt if the key's own module has
  // one. A module is used if a used name starts with its name and a dot, so only the two neighbours
  // of `name` among the sorted names need to be compared. Requires: used_names_ is sorted.
  [[nodiscard]] std::optional<std::string_view> unused_module(std::string_view name) const {
    if (used_names_.empty()) {
      return "";
    }
    const auto after = std::lower_bound(used_names_.begin(), used_names_.end(), name);
    std::size_t shared = 1;  // a leading dot belongs to the root, which is used
    for (const auto& beside : {after, after == used_names_.begin() ? after : std::prev(after)}) {
      if (beside != used_names_.end()) {
        const auto differ = std::mismatch(name.begin(), name.end(), beside->begin(), beside->end());
        shared = std::max(shared, static_cast<std::size_t>(differ.first - name.begin()));
      }
    }
    const std::size_t dot = name.find('.', shared);
    return dot == std::string_view::npos ? std::nullopt : std::optional(name.substr(0, dot));
  }

  void judge_weights(const std::vector<std::uint32_t>& weights) {
    for (const std::uint32_t tied : mapping_.keys_with({KeyVerdict::kTied})) {
      used_names_.push_back(task_.keys.keys[tied].name);  // its module is used as well
    }
    std::sort(used_names_.begin(), used_names_.end());
    std::map<std::string_view, std::vector<std::uint32_t>> modules;
    NameSet defined;  // a key of such a name is a weight of the graph, in a node
    if (!weights.empty()) {
      defined.insert(task_.graph.defined_names.begin(), task_.graph.defined_names.end());
    }
    for (const std::uint32_t key : weights) {
      const auto module = unused_module(task_.keys.keys[key].name);
      if (module && !defined.contains(task_.key_names[key].name)) {
        modules[*module].push_back(key);
      } else {
        mapping_.keys[key].verdict = KeyVerdict::kUnused;
      }
    }
    for (const auto& [module, keys] : modules) {
      // A module inside a layer that has a weight of its own changes this weight: an adapter.
      const bool is_used =
          is_batch_norm(keys) || has_nodes(module, keys) || layers_.contains(module_of(module));
      for (const std::uint32_t key : keys) {
        mapping_.keys[key].verdict = is_used ? KeyVerdict::kUnused : KeyVerdict::kUnusedModule;
      }
      if (!is_used) {
        mapping_.unused_modules.push_back(
            {std::string(module), static_cast<std::uint32_t>(keys.size())});
      }
    }
  }

  // True if the keys are only BatchNorms. They vanish from the graph when the exporter folds them
  // into the layers before them, whereas an unused head or branch has other layers too.
  [[nodiscard]] bool is_batch_norm(const std::vector<std::uint32_t>& keys) const {
    std::map<std::string_view, bool> has_mean;  // by the module of the keys
    for (const std::uint32_t key : keys) {
      const std::string_view name = task_.keys.keys[key].name;
      bool& found = has_mean[module_of(name)];
      found = found || name.ends_with("running_mean") || name.ends_with("running_var");
    }
    return std::all_of(has_mean.begin(), has_mean.end(),
                       [](const auto& module) { return module.second; });
  }

  // True if the graph has nodes of a module of the keys, and so uses its weights in some form.
  [[nodiscard]] bool has_nodes(std::string_view module, const std::vector<std::uint32_t>& keys) {
    std::string last;
    return std::any_of(keys.begin(), keys.end(), [&](std::uint32_t key) {
      std::string own = own_module(key);
      if (own == last) {
        return false;  // most keys of a module have the same name in the graph
      }
      last = std::move(own);
      return node_modules().has(name_in_graph(module, key), last);
    });
  }

  [[nodiscard]] std::string own_module(std::uint32_t key) const {
    return name_in_graph(module_of(task_.keys.keys[key].name), key);
  }

  NodeModules& node_modules() {
    if (!node_modules_) {
      std::vector<std::string> used;
      for (std::uint32_t key = 0; key < task_.key_used.size(); ++key) {
        if (task_.key_used[key]) {
          used.push_back(own_module(key));
        }
      }
      for (const std::uint32_t tied : mapping_.keys_with({KeyVerdict::kTied})) {
        used.push_back(own_module(tied));
      }
      node_modules_.emplace(task_.graph.modules, std::move(used));
    }
    return *node_modules_;
  }

  // The name of the key's module in the graph; options, wrappers and the key prefix change names.
  [[nodiscard]] std::string name_in_graph(std::string_view module, std::uint32_t key) const {
    const std::string_view inside =
        std::string_view(task_.keys.keys[key].name).substr(module.size());
    std::string_view name = task_.key_names[key].name;
    name = name.ends_with(inside) ? name.substr(0, name.size() - inside.size()) : module_of(name);
    if (key_prefix_.kind == KeyPrefix::Kind::kAdd) {
      return key_prefix_.prefix + std::string(name);
    }
    const bool is_under =
        key_prefix_.kind == KeyPrefix::Kind::kRemove && name.starts_with(key_prefix_.prefix);
    return std::string(is_under ? name.substr(key_prefix_.prefix.size()) : name);
  }

  const MappingTask& task_;
  const KeyPrefix& key_prefix_;
  const MappingEvidence& evidence_;
  Mapping& mapping_;
  std::unique_ptr<RE2::Set> ignored_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_bytes_;
  std::set<std::pair<std::string_view, std::string_view>> tied_modules_;  // modules that are tied
  std::multimap<std::uint32_t, std::uint32_t> alike_;  // keys whose equal bytes prove nothing
  std::map<Form, std::vector<std::uint32_t>> by_form_;
  std::vector<std::string_view> used_names_;
  NameSet layers_;                           // modules whose "weight" is used
  std::vector<bool> shared_;                 // by key, computed on demand
  std::optional<NodeModules> node_modules_;  // computed on demand
  std::optional<ScaleKeys> scale_keys_;      // computed on demand
  std::size_t comparisons_ = 0;
};

}  // namespace

Status judge_keys(const MappingTask& task, const KeyPrefix& key_prefix,
                  const MappingEvidence& evidence, Mapping& mapping) {
  return KeyJudge(task, key_prefix, evidence, mapping).judge();
}

bool is_left_over(KeyVerdict verdict) {
  return verdict > KeyVerdict::kTied && verdict < KeyVerdict::kIgnored;
}

}  // namespace onnx_external
