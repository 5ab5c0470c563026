#include "checkpoint/naming/torch_names.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/naming/choose_state_dict.h"
#include "checkpoint/naming/object_tree.h"
#include "checkpoint/torch/torch_objects.h"

namespace onnx_external {
namespace {

enum class Scope : std::uint8_t {
  kEverything,  // all containers; what is opaque is reported
  kTree,        // dicts, lists, tuples, flattening objects
  kOwn,         // the same, but no dict that is a value of the root
  kInputs,      // as kTree; what is opaque is an error
};

// Depth-first, in order, with a stack of its own: nesting costs heap, never the call stack.
class Walker {
 public:
  Walker(const Pickle& pickle, const ClassFlattening* classes, Scope scope)
      : pickle_(pickle),
        classes_(classes),
        scope_(scope),
        budget_(pickle),
        on_path_(pickle.node_count()),
        names_([this](std::uint32_t place) { return std::string_view(found_.tensors[place].name); },
               expected_tensors(pickle)) {
    found_.tensors.reserve(expected_tensors(pickle));
  }
  Walker(const Walker&) = delete;  // names_ looks into found_
  Walker& operator=(const Walker&) = delete;

  // Adds the contents of `root`, under names that begin with `prefix`.
  [[nodiscard]] Status walk(NodeId root, const std::string& prefix = {}) {
    path_ = prefix;
    TRY(visit(root));
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      path_.resize(frame.path_size);
      if (frame.next == frame.children.list.size()) {
        on_path_[frame.node] = false;
        frames_.pop_back();
        continue;
      }
      const Child& child = frame.children.list[frame.next++];
      if (frames_.size() > 1 || !prefix.empty()) {
        path_ += '.';
      }
      path_ += component(pickle_, frame.children, child, number_);
      TRY(visit(child.node));
    }
    return {};
  }

  [[nodiscard]] NamedTensors& found() { return found_; }

 private:
  struct Frame {
    NodeId node;
    Children children;
    std::size_t next;
    std::size_t path_size;
  };

  // A tensor of a state dict takes 13 to 24 nodes. Reserving avoids moving every name.
  static std::size_t expected_tensors(const Pickle& pickle) {
    constexpr std::size_t kNodesPerTensor = 16;
    constexpr std::size_t kMostReserved = std::size_t{1} << 16;
    return std::min(pickle.node_count() / kNodesPerTensor, kMostReserved);
  }

  [[nodiscard]] Status visit(NodeId id) {
    TRY(budget_.visit());
    if (path_.size() > kMaxWalkPathBytes) {
      return WalkBudget::too_much();
    }
    if (is_tensor(pickle_, id)) {
      return add_tensor(id);
    }
    if (scope_ == Scope::kEverything && !has_children(pickle_, id)) {
      return report(id);
    }
    if (on_path_[id]) {
      return {};  // a cycle
    }
    if (!enters(id)) {
      return scope_ == Scope::kInputs ? check_argument(id) : Status();
    }
    if (frames_.size() >= kMaxWalkDepth) {
      return fail(ErrorCode::kUnsupported,
                  "objects are nested deeper than " + std::to_string(kMaxWalkDepth) + " levels");
    }
    return enter(id);
  }

  [[nodiscard]] Status enter(NodeId id) {
    auto children = children_of(pickle_, id, classes_, budget_);
    bool is_opaque_here = !is_flattened(pickle_, classes_, id);
    if (!children && scope_ == Scope::kEverything && !is_opaque_here) {
      // A listing continues if a class's function fails.
      is_opaque_here = true;
      children = children_of(pickle_, id, nullptr, budget_);
    }
    if (!children) {
      return path_.empty() ? Status(fail(std::move(children).error()))
                           : fail_in(quote(path_), std::move(children).error());
    }
    const bool reports = scope_ == Scope::kEverything && is_opaque_here;
    TRY(reports ? report(id) : Status());
    on_path_[id] = true;
    frames_.push_back({id, *std::move(children), 0, path_.size()});
    return {};
  }

  [[nodiscard]] bool enters(NodeId id) const {
    if (scope_ == Scope::kEverything) {
      return true;
    }
    const bool is_inner_dict = scope_ == Scope::kOwn && frames_.size() == 1 && is_dict(pickle_, id);
    return !is_inner_dict && is_plain_tree(pickle_, classes_, id);
  }

  // Otherwise its tensors, if it has any, would be missing.
  [[nodiscard]] Status check_argument(NodeId id) const {
    if (pickle_.kind(id) != NodeKind::kObject || !is_opaque(pickle_, id)) {
      return {};
    }
    return fail(ErrorCode::kUnsupported, "input " + quote(path_) + " is an object of class " +
                                             quote(type_name(pickle_, id)) +
                                             ", whose flattening is not registered");
  }

  [[nodiscard]] Status report(NodeId id) {
    if (!is_opaque(pickle_, id)) {
      return {};
    }
    std::string type = type_name(pickle_, id);
    TRY(budget_.name(path_.size() + type.size()));
    found_.opaque.push_back({path_, std::move(type)});
    return {};
  }

  [[nodiscard]] Status add_tensor(NodeId id) {
    TRY(budget_.name(path_.size()));
    if (found_.tensors.size() >= kMaxWalkTensors) {
      return WalkBudget::too_much();
    }
    const bool is_text = is_utf8(path_);
    if (is_text) {
      const auto place = static_cast<std::uint32_t>(found_.tensors.size());
      found_.tensors.push_back({path_, id});
      if (names_.add(place) == place) {
        return {};
      }
      found_.tensors.pop_back();
    }
    if (scope_ == Scope::kEverything) {
      found_.refused.push_back(
          {path_, is_text ? "another tensor has the same path" : "its name is not UTF-8"});
      return {};
    }
    return is_text ? fail(ErrorCode::kCorrupt, "two tensors have the name " + quote(path_))
                   : fail(ErrorCode::kUnsupported, "tensor name " + quote(path_) + " is not UTF-8");
  }

  const Pickle& pickle_;
  const ClassFlattening* classes_;
  Scope scope_;
  WalkBudget budget_;
  std::vector<bool> on_path_;
  std::vector<Frame> frames_;
  std::string path_;
  std::string number_;
  NamedTensors found_;
  NameIndexSet names_;  // of found_.tensors
};

Result<NamedTensors> walk_one(Walker&& walker, NodeId root) {
  TRY(walker.walk(root));
  return std::move(walker.found());
}

std::vector<NodeId> sequence_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) == NodeKind::kList) {
    return pickle.elements(id);
  }
  const std::span<const NodeId> tuple = pickle.tuple(id);
  return {tuple.begin(), tuple.end()};
}

// (args, kwargs)
bool is_call(const Pickle& pickle, NodeId id) {
  constexpr std::size_t kParts = 2;
  if (pickle.kind(id) == NodeKind::kList && pickle.elements(id, kParts + 1).size() != kParts) {
    return false;
  }
  const std::vector<NodeId> parts = sequence_of(pickle, id);
  return parts.size() == kParts && pickle.is_sequence(parts[0]) && is_dict(pickle, parts[1]);
}

// The sets that a file holds: the elements of a list of them, or the root.
std::vector<NodeId> recorded_sets(const Pickle& pickle) {
  const NodeId root = pickle.root();
  const std::vector<NodeId> elements =
      pickle.kind(root) == NodeKind::kList ? pickle.elements(root) : std::vector<NodeId>();
  const bool are_sets = std::all_of(elements.begin(), elements.end(), [&](NodeId id) {
    return is_dict(pickle, id) || pickle.kind(id) == NodeKind::kTuple || is_call(pickle, id);
  });
  return elements.empty() || !are_sets || is_call(pickle, root) ? std::vector{root} : elements;
}

Status walk_positional(const Pickle& pickle, NodeId arguments, const std::string& prefix,
                       Walker& walker) {
  std::size_t position = 0;
  for (const NodeId argument : sequence_of(pickle, arguments)) {
    TRY(walker.walk(argument, prefix + ".[" + std::to_string(position++) + "]"));
  }
  return {};
}

Status walk_set(const Pickle& pickle, NodeId set, const std::string& prefix, Walker& walker) {
  if (is_tensor(pickle, set)) {
    return walker.walk(set, prefix + ".[0]");
  }
  if (!pickle.is_sequence(set)) {
    return walker.walk(set, prefix);
  }
  if (!is_call(pickle, set)) {
    return walk_positional(pickle, set, prefix, walker);
  }
  const std::vector<NodeId> call = sequence_of(pickle, set);
  TRY(walk_positional(pickle, call[0], prefix, walker));
  return walker.walk(call[1], prefix);
}

}  // namespace

Result<NamedTensors> name_everything(const Pickle& pickle, const ClassFlattening* classes) {
  return walk_one(Walker(pickle, classes, Scope::kEverything), pickle.root());
}

Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key,
                                     const ClassFlattening* classes) {
  if (key.empty()) {
    TRY_ASSIGN(const auto node, choose_only_dict(pickle, classes));
    return walk_one(Walker(pickle, classes, Scope::kOwn), node);
  }
  TRY_ASSIGN(const auto node, key == "." ? pickle.root() : choose_by_key(pickle, classes, key));
  auto named = walk_one(Walker(pickle, classes, Scope::kTree), node);
  if (named && named->tensors.empty()) {
    return fail(ErrorCode::kNotFound, "the dict at the key " + quote(key) + " contains no tensors");
  }
  return named;
}

Result<NamedTensors> name_recorded_inputs(const Pickle& pickle, const ClassFlattening* classes) {
  Walker walker(pickle, classes, Scope::kInputs);
  std::size_t number = 0;
  for (const NodeId set : recorded_sets(pickle)) {
    const std::size_t before = walker.found().tensors.size();
    const std::string prefix = std::to_string(number);
    TRY(walk_set(pickle, set, prefix, walker));
    if (walker.found().tensors.size() == before) {
      return fail(ErrorCode::kNotFound,
                  "recorded set " + prefix +
                      " contains no tensors; save (args, kwargs) or a dict of "
                      "inputs");
    }
    ++number;
  }
  return std::move(walker.found());
}

}  // namespace onnx_external
