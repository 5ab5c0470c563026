#include "checkpoint/naming/choose_state_dict.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/naming/object_tree.h"
#include "checkpoint/torch/numpy_arrays.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxListedPathBytes = 4096;
constexpr std::size_t kMaxListedCandidates = 20;
constexpr std::size_t kMaxAdvisedKeys = 8;

// A dict that can be reached through dicts (or the root itself), and how.
struct Reached {
  NodeId node;
  std::size_t parent;  // index into the list; the root is its own parent
  Child child;
  std::string name = {};  // that a flattening function gave it; empty: `child` tells
  std::size_t tensors = 0;
  std::size_t arrays = 0;  // of numpy; they count only where no dict has tensors
};

// Numpy scalars occur in many dicts and make none of them a model.
bool counts_as_array(const Pickle& pickle, NodeId id) {
  return is_array(pickle, id) && call_of(pickle, id) != Call::kArrayScalar;
}

// Finds the candidates in a pickle and chooses among them.
struct Chooser {
  const Pickle& pickle;
  const ClassFlattening* classes;
  WalkBudget budget{pickle};

  // Counts, in `reached`, the values that are tensors: under string keys ({0: {...}} is an
  // optimizer's state, not names). Mappings among the values are reached in turn.
  [[nodiscard]] Status look_into(std::vector<Reached>& reached, std::size_t at,
                                 std::vector<bool>& seen) {
    const NodeId node = reached[at].node;
    TRY_ASSIGN(const auto children, children_of(pickle, node, classes, budget));
    for (const Child& child : children.list) {
      const bool flattened = child.key == Child::kNamed;
      const bool named =
          flattened || child.key == Child::kIndex || pickle.string(child.key).has_value();
      if (named && is_dict(pickle, child.node) && !seen[child.node]) {
        seen[child.node] = true;
        reached.push_back(
            {child.node, at, child, flattened ? children.names[child.index] : std::string()});
      } else if (named && child.key != Child::kIndex) {
        reached[at].tensors += is_torch_tensor(pickle, child.node) ? 1 : 0;
        reached[at].arrays += counts_as_array(pickle, child.node) ? 1 : 0;
      }
    }
    return {};
  }

  // The root and all dicts reachable through string keys (or as elements of a list at the root),
  // breadth first, each once.
  [[nodiscard]] Result<std::vector<Reached>> reach() {
    std::vector<Reached> reached;
    const NodeId root = pickle.root();
    if (!is_dict(pickle, root) && !pickle.is_sequence(root)) {
      return reached;
    }
    std::vector<bool> seen(pickle.node_count());
    seen[root] = true;
    reached.push_back({root, 0, {Child::kIndex, 0, root}});
    for (std::size_t i = 0; i < reached.size(); ++i) {
      TRY(look_into(reached, i, seen));
    }
    return reached;
  }

  // Tensors under any key and in lists, tuples and the like; not those of dicts inside.
  [[nodiscard]] Result<std::size_t> count_held(NodeId node) {
    std::size_t tensors = 0;
    std::unordered_set<NodeId> seen{node};
    std::vector<NodeId> open{node};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      TRY_ASSIGN(const auto children, children_of(pickle, at, classes, budget));
      for (const Child& child : children.list) {
        const bool is_own = at != node || !is_dict(pickle, child.node);
        if (is_tensor(pickle, child.node)) {
          ++tensors;
        } else if (is_own && is_plain_tree(pickle, classes, child.node) &&
                   seen.insert(child.node).second) {
          open.push_back(child.node);
        }
      }
    }
    return tensors;
  }

  // The candidates: dicts with tensors as values; where there is none, those with numpy arrays;
  // then what holds tensors in lists and tuples.
  [[nodiscard]] Result<std::vector<Reached>> candidates() {
    TRY_ASSIGN(auto reached, reach());
    const auto any_has = [&](std::size_t Reached::*what) {
      return std::any_of(reached.begin(), reached.end(),
                         [&](const Reached& one) { return one.*what != 0; });
    };
    bool any = any_has(&Reached::tensors);
    if (!any && any_has(&Reached::arrays)) {
      any = true;
      for (Reached& one : reached) {
        one.tensors = one.arrays;
      }
    }
    for (std::size_t i = 0; !any && i < reached.size(); ++i) {
      TRY_ASSIGN(reached[i].tensors, count_held(reached[i].node));
    }
    return reached;
  }
};

std::string path_of(const Pickle& pickle, const std::vector<Reached>& reached, std::size_t index) {
  std::vector<std::string> keys;
  std::size_t bytes = 0;
  std::string buffer;
  for (std::size_t at = index; at != 0 && bytes < kMaxListedPathBytes; at = reached[at].parent) {
    const std::string_view key = reached[at].child.key == Child::kNamed
                                     ? std::string_view(reached[at].name)
                                     : component(pickle, {}, reached[at].child, buffer);
    keys.emplace_back(key.substr(0, kMaxListedPathBytes));
    bytes += keys.back().size() + 1;
  }
  std::string path;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    path += path.empty() ? "" : ".";
    path += *key;
  }
  return path.empty() ? "." : path;
}

std::vector<std::size_t> with_tensors(const std::vector<Reached>& reached) {
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

// The one with most tensors first.
std::vector<Remedy> keys_to_choose(const Pickle& pickle, const std::vector<Reached>& reached,
                                   std::vector<std::size_t> found) {
  std::stable_sort(found.begin(), found.end(), [&](std::size_t a, std::size_t b) {
    return reached[a].tensors > reached[b].tensors;
  });
  std::vector<Remedy> remedies;
  for (std::size_t i = 0; i < found.size() && i < kMaxAdvisedKeys; ++i) {
    remedies.push_back({RemedyOption::kKey, path_of(pickle, reached, found[i]), "uses this one"});
  }
  remedies.push_back({RemedyOption::kKey, ".", "uses all of them, under their full names"});
  return remedies;
}

// Recognizes what torch.optim.Optimizer.state_dict() returns.
bool is_optimizer_state(const Pickle& pickle) {
  WalkBudget budget(pickle);
  if (!is_dict(pickle, pickle.root())) {
    return false;
  }
  const auto children = children_of(pickle, pickle.root(), nullptr, budget);
  return children &&
         std::any_of(children->list.begin(), children->list.end(), [&](const Child& child) {
           return child.key != Child::kIndex && child.key != Child::kNamed &&
                  pickle.string(child.key) == "param_groups";
         });
}

Error no_dict(const Pickle& pickle) {
  const NodeId root = pickle.root();
  if (is_tensor(pickle, root)) {
    return {ErrorCode::kNotFound,
            "contains one tensor without a name; save {'name': tensor} instead"};
  }
  if (pickle.kind(root) == NodeKind::kObject && !is_dict(pickle, root)) {
    return {ErrorCode::kNotFound,
            "contains an object of type " + quote(type_name(pickle, root)) +
                ", not a dict that maps names to tensors; save its state_dict() instead"};
  }
  if (is_optimizer_state(pickle)) {
    return {
        ErrorCode::kNotFound,
        "contains the state of an optimizer; the weights are in another file of the training run"};
  }
  return error_with(
      ErrorCode::kNotFound,
      "contains no dict that maps names to tensors; save a state_dict() instead",
      {{RemedyOption::kKey, "NAME", "if there is one at a deeper level, by its dotted path"}});
}

// The result of a search along a dotted key.
struct KeySearch {
  std::set<NodeId> trees;
  bool met_tensor = false;
};

// Keys may themselves contain dots, so several paths may match one key.
Result<KeySearch> search_key(const Pickle& pickle, const ClassFlattening* classes,
                             const std::string& key) {
  WalkBudget budget(pickle);
  KeySearch search;
  std::set<std::pair<NodeId, std::size_t>> seen;
  std::vector<std::pair<NodeId, std::size_t>> open{{pickle.root(), 0}};  // node, bytes used
  while (!open.empty()) {
    const auto [node, used] = open.back();
    open.pop_back();
    if (!is_plain_tree(pickle, classes, node) || !seen.emplace(node, used).second) {
      continue;
    }
    const std::string_view rest = std::string_view(key).substr(used);
    std::string number;
    TRY_ASSIGN(const auto children, children_of(pickle, node, classes, budget));
    for (const Child& child : children.list) {
      const std::string_view name = component(pickle, children, child, number);
      if (rest.size() > name.size() && rest.starts_with(name) && rest[name.size()] == '.') {
        open.emplace_back(child.node, used + name.size() + 1);
      } else if (rest == name && is_tensor(pickle, child.node)) {
        search.met_tensor = true;
      } else if (rest == name && is_plain_tree(pickle, classes, child.node)) {
        search.trees.insert(child.node);
      }
    }
  }
  return search;
}

}  // namespace

Result<NodeId> choose_only_dict(const Pickle& pickle, const ClassFlattening* classes) {
  TRY_ASSIGN(const auto reached, Chooser{pickle, classes}.candidates());
  const std::vector<std::size_t> found = with_tensors(reached);
  if (found.empty()) {
    return fail(no_dict(pickle));
  }
  if (found.size() > 1) {
    return fail_with(
        ErrorCode::kAmbiguous,
        "several dicts that map names to tensors: " + list_candidates(pickle, reached, found),
        keys_to_choose(pickle, reached, found));
  }
  return reached[found.front()].node;
}

Result<NodeId> choose_by_key(const Pickle& pickle, const ClassFlattening* classes,
                             const std::string& key) {
  TRY_ASSIGN(const auto search, search_key(pickle, classes, key));
  if (search.trees.size() == 1) {
    return *search.trees.begin();
  }
  if (search.trees.size() > 1) {
    return fail(ErrorCode::kAmbiguous, "there are two dicts at the key " + quote(key));
  }
  if (search.met_tensor) {
    return fail(ErrorCode::kNotFound,
                "the key " + quote(key) +
                    " leads to a single tensor; pass the key of the dict that contains it");
  }
  TRY_ASSIGN(const auto reached, Chooser{pickle, classes}.candidates());
  const std::vector<std::size_t> found = with_tensors(reached);
  return fail(ErrorCode::kNotFound,
              "no dict at the key " + quote(key) +
                  (found.empty() ? std::string(", nor at any other key")
                                 : "; available: " + list_candidates(pickle, reached, found)));
}

}  // namespace onnx_external
