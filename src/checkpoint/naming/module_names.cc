#include "checkpoint/naming/module_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "checkpoint/pickle/walk_budget.h"
#include "checkpoint/torch/torch_objects.h"

namespace onnx_external {
namespace {

constexpr std::string_view kScriptRoot = "__torch__";
constexpr std::string_view kScriptBound = "__torch__.torch.classes";  // classes written in C++

bool is_in(std::string_view module, std::string_view package) {
  return module.starts_with(package) &&
         (module.size() == package.size() || module[package.size()] == '.');
}

bool is_object_of(const Pickle& pickle, NodeId id, std::string_view package) {
  return pickle.kind(id) == NodeKind::kObject &&
         pickle.kind(pickle.callable(id)) == NodeKind::kGlobal &&
         is_in(pickle.module(pickle.callable(id)), package);
}

// The result of torch.jit._pickle's calls, which is their first argument, a list or dict.
NodeId behind_type_tags(const Pickle& pickle, NodeId id) {
  constexpr int kMaxTags = 16;  // a list in a dict in an optional: each adds one
  NodeId value = id;
  for (int i = 0; i < kMaxTags && is_object_of(pickle, value, "torch.jit._pickle"); ++i) {
    const auto arguments = pickle.tuple(pickle.arguments(value));
    if (arguments.empty()) {
      return id;
    }
    value = arguments[0];
  }
  const NodeKind kind = pickle.kind(value);
  return kind == NodeKind::kList || kind == NodeKind::kDict ? value : id;
}

bool holds(const std::vector<std::string>& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

// Attributes that are useless in a listing of tensors and objects.
bool is_plain(NodeKind kind) {
  switch (kind) {
    case NodeKind::kNone:
    case NodeKind::kBool:
    case NodeKind::kInteger:
    case NodeKind::kBigInteger:
    case NodeKind::kFloat:
    case NodeKind::kString:
    case NodeKind::kBytes:
      return true;
    default:
      return false;
  }
}

// Used once: construct, run.
class Expander {
 public:
  Expander(Pickle& pickle, Selection selection, ScriptClasses* classes)
      : pickle_(pickle),
        classes_(classes),
        everything_(selection == Selection::kEverything),
        reached_(pickle.node_count()),
        scanned_(pickle.node_count()),
        budget_(pickle) {}

  [[nodiscard]] Status run() {
    reach(pickle_.root());
    while (!open_.empty()) {
      const NodeId id = open_.back();
      open_.pop_back();
      if (!is_module(id)) {
        reach_parts(id);
      } else if (auto status = expand(id); !status) {
        return status;
      }
    }
    for (const auto& [module, dict] : expanded_) {
      pickle_.replace(module, dict);
    }
    return {};
  }

  [[nodiscard]] std::vector<OpaqueObject> take_objects() { return std::move(objects_); }

 private:
  struct Parts {
    NodeId parameters = 0;
    NodeId buffers = 0;
    NodeId modules = 0;
    NodeId not_persistent = 0;  // a set of names
  };
  struct Frame {
    NodeId module;
    Items items;
    std::size_t next;
    std::size_t prefix_size;
  };

  // Visits each node that has parts and is not a tensor once.
  void reach(NodeId id) {
    if (!is_plain(pickle_.kind(id)) && !reached_[id] && !is_tensor(pickle_, id)) {
      reached_[id] = true;
      open_.push_back(id);
    }
  }

  void reach_all(std::span<const NodeId> ids) {
    for (const NodeId id : ids) {
      reach(id);
    }
  }

  void reach_parts(NodeId id) {
    const NodeId value = classes_ == nullptr ? id : behind_type_tags(pickle_, id);
    if (value != id) {
      pickle_.replace(id, value);
    }
    reach_all(pickle_.tuple(id));
    reach_all(pickle_.elements(id));
    for (const auto& [key, item] : pickle_.items(id)) {
      reach(item);
    }
    if (pickle_.kind(id) == NodeKind::kObject) {
      reach(pickle_.arguments(id));
      reach_all(pickle_.states(id));
    }
  }

  // Returns the attribute dict that BUILD set for an object (the first part of a state (dict,
  // slots)), or 0.
  [[nodiscard]] NodeId attributes_of(NodeId id) const {
    if (pickle_.kind(id) != NodeKind::kObject || pickle_.has_items(id)) {
      return 0;
    }
    const std::vector<NodeId> states = pickle_.states(id, 2);
    if (states.size() != 1) {
      return 0;
    }
    const auto pair = pickle_.tuple(states[0]);
    const NodeId dict = pair.size() == 2 ? pair[0] : states[0];
    return pickle_.kind(dict) == NodeKind::kDict ? dict : 0;
  }

  // Scans a dict only once, even if many objects share it. Returns nullptr if the dict does not
  // belong to a Python module.
  const Parts* python_parts(NodeId attributes) {
    if (!scanned_[attributes]) {
      scanned_[attributes] = true;
      Parts parts;
      for (const auto& [key, value] : pickle_.items(attributes)) {
        const auto name = pickle_.string(key);
        if (name == "_parameters") {
          parts.parameters = value;
        } else if (name == "_buffers") {
          parts.buffers = value;
        } else if (name == "_modules") {
          parts.modules = value;
        } else if (name == "_non_persistent_buffers_set") {
          parts.not_persistent = value;
        }
      }
      if (is_dict(pickle_, parts.parameters) && is_dict(pickle_, parts.buffers) &&
          is_dict(pickle_, parts.modules)) {
        python_.emplace(attributes, parts);
      }
    }
    const auto found = python_.find(attributes);
    return found == python_.end() ? nullptr : &found->second;
  }

  bool is_module(NodeId id) {
    const NodeId attributes = attributes_of(id);
    if (attributes == 0 || is_tensor(pickle_, id)) {
      return false;
    }
    return classes_ == nullptr
               ? python_parts(attributes) != nullptr
               : is_object_of(pickle_, id, kScriptRoot) && !is_object_of(pickle_, id, kScriptBound);
  }

  Result<Items> items_of(NodeId module) {
    const NodeId attributes = attributes_of(module);
    return classes_ == nullptr ? python_items(module, attributes)
                               : script_items(module, attributes);
  }

  Result<Items> python_items(NodeId module, NodeId attributes) {
    const Parts parts = *python_parts(attributes);
    std::set<std::string_view> not_persistent;
    if (!collect_names(parts.not_persistent, not_persistent)) {
      return too_much();
    }
    Items items;
    std::set<std::string_view> names;
    for (const NodeId part : {parts.parameters, parts.buffers, parts.modules}) {
      const auto own = dict_items(pickle_, part);
      if (!own || !budget_.visit_items(pickle_, *own)) {
        return own ? too_much() : own;
      }
      for (const auto& [key, value] : *own) {
        const auto name = pickle_.string(key);
        const bool left_out = part == parts.buffers && name && not_persistent.contains(*name);
        if (name && (everything_ || !left_out)) {
          items.emplace_back(key, value);
          names.insert(*name);
        }
      }
    }
    if (!everything_) {
      return items;
    }
    const Items others = pickle_.items(attributes);
    if (!budget_.visit_items(pickle_, others)) {
      return too_much();
    }
    for (const auto& [key, value] : others) {
      const auto name = pickle_.string(key);
      if (name && !names.contains(*name) && value != parts.parameters && value != parts.buffers &&
          value != parts.modules && value != parts.not_persistent) {
        items.emplace_back(key, value);
      }
    }
    items.emplace_back(class_key(), pickle_.callable(module));
    return items;
  }

  NodeId class_key() {
    if (class_key_ == 0) {
      class_key_ = pickle_.add_string("__class__");
    }
    return class_key_;
  }

  Result<Items> script_items(NodeId module, NodeId attributes) {
    const Items all = pickle_.items(attributes);
    const NodeId callable = pickle_.callable(module);
    const std::string_view file = pickle_.module(callable);
    const std::string_view name = pickle_.name(callable);
    if (!budget_.visit_items(pickle_, all) || !budget_.visit_text(file) ||
        !budget_.visit_text(name)) {
      return too_much();
    }
    if (everything_) {
      return all;
    }
    TRY_ASSIGN(const ScriptClass* known, classes_->find(file, name));
    Items items;
    Items buffers;
    Items objects;
    for (const auto& item : all) {
      const auto attribute = pickle_.string(item.first);
      if (!attribute || (known != nullptr && !known->is_module)) {
        continue;
      }
      if (!is_tensor(pickle_, item.second)) {
        objects.push_back(item);
      } else if (known != nullptr && holds(known->parameters, *attribute)) {
        items.push_back(item);
      } else if (known == nullptr || !known->lists_buffers || holds(known->buffers, *attribute)) {
        buffers.push_back(item);
      }
    }
    items.insert(items.end(), buffers.begin(), buffers.end());
    items.insert(items.end(), objects.begin(), objects.end());
    return items;
  }

  // Depth-first, in order; `flat_` receives the names.
  [[nodiscard]] Status expand(NodeId root) {
    flat_.clear();
    prefix_.clear();
    std::vector<Frame> frames;
    std::set<NodeId> on_path;
    TRY(enter(root, frames, on_path));
    while (!frames.empty()) {
      Frame& frame = frames.back();
      prefix_.resize(frame.prefix_size);
      if (frame.next == frame.items.size()) {
        on_path.erase(frame.module);
        frames.pop_back();
        continue;
      }
      const auto [key, value] = frame.items[frame.next++];
      if (const auto name = pickle_.string(key)) {
        prefix_ += *name;
        if (prefix_.size() > kMaxWalkPathBytes) {
          return too_much();
        }
        TRY(is_module(value) ? enter(value, frames, on_path) : add(value));
      }
    }
    expanded_.emplace_back(root, pickle_.add_dict(flat_));
    return {};
  }

  [[nodiscard]] Status enter(NodeId module, std::vector<Frame>& frames, std::set<NodeId>& on_path) {
    if (!on_path.insert(module).second) {
      return {};  // it contains itself
    }
    TRY_ASSIGN(auto items, items_of(module));
    if (frames.size() >= kMaxWalkDepth || !budget_.visit()) {
      return too_much();
    }
    prefix_ += frames.empty() ? "" : ".";
    frames.push_back({module, std::move(items), 0, prefix_.size()});
    return {};
  }

  // Adds a value of a module that is not itself a module, under the name in prefix_.
  [[nodiscard]] Status add(NodeId value) {
    const bool tensor = is_tensor(pickle_, value);
    const bool object = !tensor && is_object_of(pickle_, value, kScriptRoot);
    if (is_plain(pickle_.kind(value)) || (!tensor && !object && !everything_)) {
      return {};
    }
    if (!budget_.name(prefix_.size())) {
      return too_much();
    }
    if (object && !everything_) {
      objects_.push_back({prefix_, type_name(pickle_, value)});
      return {};
    }
    flat_.emplace_back(pickle_.add_string(prefix_), value);
    reach(value);
    return {};
  }

  // Collects the strings in a set, which protocols store in different forms. Returns false if the
  // budget is exceeded.
  [[nodiscard]] bool collect_names(NodeId set, std::set<std::string_view>& names) {
    if (pickle_.kind(set) == NodeKind::kObject) {  // set([...])
      const auto arguments = pickle_.tuple(pickle_.arguments(set));
      set = arguments.empty() ? set : arguments[0];
    }
    for (const NodeId element : pickle_.elements(set)) {
      const auto name = pickle_.string(element);
      if (!budget_.visit_text(name.value_or(""))) {
        return false;
      }
      if (name) {
        names.insert(*name);
      }
    }
    return true;
  }

  [[nodiscard]] tl::unexpected<Error> too_much() const {
    return classes_ == nullptr ? WalkBudget::too_much()
                               : fail_in(classes_->archive(), WalkBudget::too_much().value());
  }

  Pickle& pickle_;
  ScriptClasses* classes_;  // nullptr: Python modules
  bool everything_;
  std::vector<bool> reached_;
  std::vector<bool> scanned_;  // attribute dicts
  std::map<NodeId, Parts> python_;
  WalkBudget budget_;
  std::vector<NodeId> open_;
  NodeId class_key_ = 0;

  Items flat_;
  std::string prefix_;
  std::vector<OpaqueObject> objects_;
  std::vector<std::pair<NodeId, NodeId>> expanded_;  // replaced last: modules share submodules
};

}  // namespace

Status expand_modules(Pickle& pickle, Selection selection) {
  return Expander(pickle, selection, nullptr).run();
}

Result<std::vector<OpaqueObject>> expand_script_modules(Pickle& pickle, Selection selection,
                                                        ScriptClasses& classes) {
  Expander expander(pickle, selection, &classes);
  TRY(expander.run());
  return expander.take_objects();
}

}  // namespace onnx_external
