#include "checkpoint/torch_names.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "checkpoint/numpy_arrays.h"
#include "checkpoint/torch_objects.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxDepth = 1000;
constexpr std::size_t kMaxTensors = 4'000'000;
constexpr std::size_t kMaxPathBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxListedPathBytes = 4096;
constexpr std::size_t kMaxListedCandidates = 20;

// How much a walk may do for a pickle of so many nodes: sharing makes a small file name the same
// tensor under many paths, and honest files do so a few times, not thousands of times.
struct Budget {
  explicit Budget(const Pickle& pickle)
      : visits(65'536 + 16 * std::uint64_t{pickle.node_count()}),
        name_bytes((std::uint64_t{16} << 20) + 64 * std::uint64_t{pickle.node_count()}) {}
  std::uint64_t visits;
  std::uint64_t name_bytes;

  [[nodiscard]] Status visit(std::uint64_t count = 1) {
    if (count > visits) {
      return too_much();
    }
    visits -= count;
    return {};
  }
  [[nodiscard]] Status name(std::size_t bytes) {
    if (bytes > name_bytes) {
      return too_much();
    }
    name_bytes -= bytes;
    return {};
  }
  static tl::unexpected<Error> too_much() {
    return fail(ErrorCode::kUnsupported,
                "the pickle repeats its parts under too many names to list them");
  }
};

// One part of a container: under a key, or (kNoKey) under its index. Keys are not copied: a small
// pickle may use one long key a million times.
constexpr NodeId kNoKey = 0xffffffff;
struct Child {
  NodeId key;
  std::uint32_t index;
  NodeId node;
};
using Children = std::vector<Child>;

// A key or index as a component of a path; "#index" for a key that is neither string nor int.
// The view lives as long as `buffer` is not changed.
std::string_view component(const Pickle& pickle, const Child& child, std::string& buffer) {
  if (child.key == kNoKey) {
    buffer = std::to_string(child.index);
  } else if (const auto text = pickle.string(child.key)) {
    return *text;
  } else if (const auto number = pickle.integer(child.key)) {
    buffer = std::to_string(*number);
  } else {
    buffer = "#" + std::to_string(child.index);
  }
  return buffer;
}

void add_child(Children& out, NodeId key, NodeId node) {
  out.push_back({key, static_cast<std::uint32_t>(out.size()), node});
}

// The items of a mapping, paid for: one for each, and more for long keys. A dict has no twin keys,
// so a pickle that sets one twice (Python would keep the later value) was not written by torch.
Result<Items> paid_items(const Pickle& pickle, NodeId id, Budget& budget) {
  constexpr std::uint64_t kFreeKeyBytes = 64;
  auto items = mapping_items(pickle, id);
  if (!items) {
    return items;
  }
  std::uint64_t cost = items->size();
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : *items) {
    if (const auto text = pickle.string(key)) {
      cost += text->size() / kFreeKeyBytes;
      keys.push_back(*text);
    }
  }
  if (auto status = budget.visit(cost); !status) {
    return fail(std::move(status).error());
  }
  std::sort(keys.begin(), keys.end());
  const auto twin = std::adjacent_find(keys.begin(), keys.end());
  if (twin != keys.end()) {
    return fail(ErrorCode::kCorrupt, "two values have the name " + quote(*twin));
  }
  return items;
}

void add_items(const Items& items, Children& out) {
  for (const auto& [key, value] : items) {
    add_child(out, key, value);
  }
}

void add_elements(std::span<const NodeId> elements, Children& out) {
  for (const NodeId element : elements) {
    add_child(out, kNoKey, element);
  }
}

std::span<const NodeId> tuple_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kTuple) {
    return {};
  }
  const auto [first, count] = pickle.tuple(id);
  return {first, count};
}

Status add_mapping(const Pickle& pickle, NodeId id, Budget& budget, Children& out) {
  const auto items = paid_items(pickle, id, budget);
  if (!items) {
    return fail(items.error());
  }
  add_items(*items, out);
  return {};
}

// The parts of an object that may hold tensors: arguments, what was added, and its attributes.
// The state of a mapping is not its content (state_dict()'s `_metadata` stands there).
Status add_object_parts(const Pickle& pickle, NodeId id, Budget& budget, Children& out) {
  if (is_mapping(pickle, id)) {
    return add_mapping(pickle, id, budget, out);
  }
  if (!is_opaque(pickle, id)) {
    return {};
  }
  add_elements(tuple_of(pickle, pickle.arguments(id)), out);
  add_elements(pickle.elements(id), out);
  for (const NodeId state : pickle.states(id)) {
    auto status = is_mapping(pickle, state) ? add_mapping(pickle, state, budget, out) : Status();
    for (const NodeId part : tuple_of(pickle, state)) {  // (dict, slots) among others
      if (status && is_mapping(pickle, part)) {
        status = add_mapping(pickle, part, budget, out);
      } else {
        add_child(out, kNoKey, part);
      }
    }
    if (!status) {
      return status;
    }
  }
  return {};
}

// A shared container is paid for each time that it is expanded: the copy is work, and memory.
Result<Children> children_of(const Pickle& pickle, NodeId id, Budget& budget) {
  Children out;
  Status status;
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
      status = add_mapping(pickle, id, budget, out);
      break;
    case NodeKind::kList:
    case NodeKind::kSet:
      add_elements(pickle.elements(id), out);
      break;
    case NodeKind::kTuple:
      add_elements(tuple_of(pickle, id), out);
      break;
    case NodeKind::kObject:
      status = add_object_parts(pickle, id, budget, out);
      break;
    default:
      break;
  }
  if (status) {
    status = budget.visit(out.size());
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return out;
}

bool has_children(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
    case NodeKind::kList:
    case NodeKind::kSet:
    case NodeKind::kTuple:
    case NodeKind::kObject:
      return true;
    default:
      return false;
  }
}

enum class Scope : std::uint8_t {
  kEverything,  // all containers; what is opaque is reported
  kMappings,    // mappings inside mappings
  kOneMapping,  // the root's own values
};

// Depth-first, in order, with a stack of its own: nesting costs heap, never the call stack.
class Walker {
 public:
  Walker(const Pickle& pickle, Scope scope)
      : pickle_(pickle), scope_(scope), budget_(pickle), on_path_(pickle.node_count()) {}

  [[nodiscard]] Result<NamedTensors> run(NodeId root) {
    auto status = visit(root);
    while (status && !frames_.empty()) {
      Frame& frame = frames_.back();
      path_.resize(frame.path_size);
      if (frame.next == frame.children.size()) {
        on_path_[frame.node] = false;
        frames_.pop_back();
        continue;
      }
      const Child& child = frame.children[frame.next++];
      if (frames_.size() > 1) {
        path_ += '.';
      }
      path_ += component(pickle_, child, number_);
      status = visit(child.node);
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return std::move(found_);
  }

 private:
  struct Frame {
    NodeId node;
    Children children;
    std::size_t next;
    std::size_t path_size;
  };

  [[nodiscard]] Status visit(NodeId id) {
    if (auto status = budget_.visit(); !status) {
      return status;
    }
    if (path_.size() > kMaxPathBytes) {
      return Budget::too_much();
    }
    if (is_tensor(pickle_, id)) {
      return add_tensor(id);
    }
    if (scope_ == Scope::kEverything && !has_children(pickle_, id)) {
      return report(id);
    }
    if (on_path_[id] || !enters(id)) {
      return {};  // a cycle, or none of our business
    }
    if (frames_.size() >= kMaxDepth) {
      return fail(ErrorCode::kUnsupported,
                  "objects are nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    auto status = report(id);
    if (!status) {
      return status;
    }
    auto children = children_of(pickle_, id, budget_);
    if (!children) {
      return fail(std::move(children).error());
    }
    on_path_[id] = true;
    frames_.push_back({id, *std::move(children), 0, path_.size()});
    return {};
  }

  [[nodiscard]] bool enters(NodeId id) const {
    switch (scope_) {
      case Scope::kEverything:
        return true;
      case Scope::kMappings:
        return is_mapping(pickle_, id);
      default:
        return frames_.empty();
    }
  }

  [[nodiscard]] Status report(NodeId id) {
    if (!is_opaque(pickle_, id)) {
      return {};
    }
    std::string type = type_name(pickle_, id);
    auto status = budget_.name(path_.size() + type.size());
    if (status) {
      found_.opaque.push_back({path_, std::move(type)});
    }
    return status;
  }

  [[nodiscard]] Status add_tensor(NodeId id) {
    if (auto status = budget_.name(path_.size()); !status) {
      return status;
    }
    if (found_.tensors.size() >= kMaxTensors) {
      return Budget::too_much();
    }
    const bool is_text = is_utf8(path_);
    if (is_text && names_.insert(path_).second) {
      found_.tensors.push_back({path_, id});
      return {};
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
  Scope scope_;
  Budget budget_;
  std::vector<bool> on_path_;
  std::vector<Frame> frames_;
  std::string path_;
  std::string number_;
  std::unordered_set<std::string> names_;
  NamedTensors found_;
};

// A mapping that can be reached through mappings, and how.
struct Reached {
  NodeId node;
  std::size_t parent;  // index into the list; the root is its own parent
  NodeId key;
  std::size_t tensors;  // values that are tensors
  std::size_t arrays = 0;
};

// A lone numpy number ("best_accuracy") stands in many dicts, and makes none of them a model.
bool counts_as_array(const Pickle& pickle, NodeId id) {
  return is_array(pickle, id) && call_of(pickle, id) != Call::kArrayScalar;
}

// All mappings reachable through string keys, breadth first, each once.
Result<std::vector<Reached>> reach_mappings(const Pickle& pickle) {
  std::vector<Reached> reached;
  Budget budget(pickle);
  if (!is_mapping(pickle, pickle.root())) {
    return reached;
  }
  std::vector<bool> seen(pickle.node_count());
  seen[pickle.root()] = true;
  reached.push_back({pickle.root(), 0, 0, 0});
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const auto items = paid_items(pickle, reached[i].node, budget);
    if (!items) {
      return fail(items.error());
    }
    for (const auto& [key, value] : *items) {
      if (!pickle.string(key)) {
        continue;  // {0: {...}}: an optimizer's state, not names
      }
      if (is_torch_tensor(pickle, value)) {
        ++reached[i].tensors;
      } else if (counts_as_array(pickle, value)) {
        ++reached[i].arrays;
      } else if (is_mapping(pickle, value) && !seen[value]) {
        seen[value] = true;
        reached.push_back({value, i, key, 0});
      }
    }
  }
  const auto has_tensors = [](const Reached& mapping) { return mapping.tensors != 0; };
  if (std::none_of(reached.begin(), reached.end(), has_tensors)) {
    for (Reached& mapping : reached) {
      mapping.tensors = mapping.arrays;  // names of numpy arrays: weights as well
    }
  }
  return reached;
}

std::string path_of(const Pickle& pickle, const std::vector<Reached>& reached, std::size_t index) {
  std::vector<std::string_view> keys;
  std::size_t bytes = 0;
  for (std::size_t at = index; at != 0 && bytes < kMaxListedPathBytes; at = reached[at].parent) {
    keys.push_back(pickle.string(reached[at].key)->substr(0, kMaxListedPathBytes));
    bytes += keys.back().size() + 1;
  }
  std::string path;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    path += path.empty() ? "" : ".";
    path += *key;
  }
  return path.empty() ? "." : path;
}

std::vector<std::size_t> candidates(const std::vector<Reached>& reached) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    if (reached[i].tensors != 0) {
      found.push_back(i);
    }
  }
  return found;
}

// "'model' (62 tensors), 'ema' (62 tensors)"
std::string list_candidates(const Pickle& pickle, const std::vector<Reached>& reached,
                            const std::vector<std::size_t>& found) {
  std::string text;
  for (std::size_t i = 0; i < found.size() && i < kMaxListedCandidates; ++i) {
    text += (i == 0 ? "" : ", ") + quote(path_of(pickle, reached, found[i])) + " (" +
            std::to_string(reached[found[i]].tensors) +
            (reached[found[i]].tensors == 1 ? " tensor)" : " tensors)");
  }
  if (found.size() > kMaxListedCandidates) {
    text += " and " + std::to_string(found.size() - kMaxListedCandidates) + " more";
  }
  return text;
}

Error no_mapping(const Pickle& pickle) {
  const NodeId root = pickle.root();
  if (is_tensor(pickle, root)) {
    return {ErrorCode::kNotFound, "holds one tensor without a name; save {'name': tensor} instead"};
  }
  if (pickle.kind(root) == NodeKind::kObject && !is_mapping(pickle, root)) {
    return {ErrorCode::kNotFound, "holds an object of type " + quote(type_name(pickle, root)) +
                                      ", not a mapping of names to tensors; save its "
                                      "state_dict() instead"};
  }
  return {
      ErrorCode::kNotFound,
      "holds no mapping of names to tensors; save a state_dict(), or name the place with --key"};
}

Result<NodeId> choose_only(const Pickle& pickle) {
  const auto reached = reach_mappings(pickle);
  if (!reached) {
    return fail(reached.error());
  }
  const std::vector<std::size_t> found = candidates(*reached);
  if (found.empty()) {
    return fail(no_mapping(pickle));
  }
  if (found.size() > 1) {
    return fail(ErrorCode::kAmbiguous, "several mappings of names to tensors: " +
                                           list_candidates(pickle, *reached, found) +
                                           "; choose one with --key NAME (--key . takes all)");
  }
  return (*reached)[found.front()].node;
}

// The mapping at a dotted path; keys may hold dots themselves.
Result<NodeId> choose_by_key(const Pickle& pickle, const std::string& key) {
  Budget budget(pickle);
  std::set<NodeId> matches;
  std::set<std::pair<NodeId, std::size_t>> seen;
  std::vector<std::pair<NodeId, std::size_t>> open{{pickle.root(), 0}};  // node, bytes used
  while (!open.empty()) {
    const auto [node, used] = open.back();
    open.pop_back();
    if (!is_mapping(pickle, node) || !seen.emplace(node, used).second) {
      continue;
    }
    const std::string_view rest = std::string_view(key).substr(used);
    std::string number;
    Children children;
    if (auto status = add_mapping(pickle, node, budget, children); !status) {
      return fail(std::move(status).error());
    }
    for (const Child& child : children) {
      const std::string_view name = component(pickle, child, number);
      if (rest == name && is_mapping(pickle, child.node)) {
        matches.insert(child.node);
      } else if (rest.size() > name.size() && rest.starts_with(name) && rest[name.size()] == '.') {
        open.emplace_back(child.node, used + name.size() + 1);
      }
    }
  }
  if (matches.size() == 1) {
    return *matches.begin();
  }
  if (matches.size() > 1) {
    return fail(ErrorCode::kAmbiguous, "two mappings lie at the key " + quote(key));
  }
  const auto reached = reach_mappings(pickle);
  if (!reached) {
    return fail(reached.error());
  }
  const std::vector<std::size_t> found = candidates(*reached);
  return fail(ErrorCode::kNotFound,
              "no mapping at the key " + quote(key) +
                  (found.empty() ? std::string("; nor any other")
                                 : "; there are " + list_candidates(pickle, *reached, found)));
}

}  // namespace

Result<NamedTensors> name_everything(const Pickle& pickle) {
  return Walker(pickle, Scope::kEverything).run(pickle.root());
}

Result<NamedTensors> name_state_dict(const Pickle& pickle, const std::string& key) {
  if (key.empty()) {
    auto node = choose_only(pickle);
    if (!node) {
      return fail(std::move(node).error());
    }
    return Walker(pickle, Scope::kOneMapping).run(*node);
  }
  Result<NodeId> node = pickle.root();
  if (key != ".") {
    node = choose_by_key(pickle, key);
  }
  if (!node) {
    return fail(std::move(node).error());
  }
  auto named = Walker(pickle, Scope::kMappings).run(*node);
  if (named && named->tensors.empty()) {
    return fail(ErrorCode::kNotFound, "the mapping at the key " + quote(key) + " holds no tensor");
  }
  return named;
}

}  // namespace onnx_external
