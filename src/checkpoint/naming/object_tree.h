// Flattens nested values: lists the parts of a value in a pickle, and assigns a dotted path to each
// part.
//
// For dicts and attributes, the components of a path are the keys and names. For lists, tuples and
// sets, they are the indices of the elements. For classes in the caller's table, they are the names
// that the function for the class returns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/pickle/walk_budget.h"
#include "checkpoint/torch/torch_objects.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// One part of a value. It refers to its key and does not copy it, because a small pickle may use
// one long key a million times.
struct Child {
  static constexpr NodeId kIndex = 0xffffffff;  // the part is named by its index
  static constexpr NodeId kNamed = 0xfffffffe;  // the part is named Children::names[index]
  NodeId key;
  std::uint32_t index;
  NodeId node;
};
struct Children {
  std::vector<Child> list;
  std::vector<std::string> names;  // returned by a class's function
};

// Returns the component of a path for a key or index. For a key that is neither a string nor an
// int, this is "#index". The view is valid until `buffer` or `children` changes.
[[nodiscard]] std::string_view component(const Pickle& pickle, const Children& children,
                                         const Child& child, std::string& buffer);

// Returns whether children_of() may find parts in the value.
[[nodiscard]] bool has_children(const Pickle& pickle, NodeId id);

// Returns whether the value may contain tensors of a state dict. This is true for dicts, lists,
// tuples, objects constructed only from arguments (such as named tuples), and classes in the table.
[[nodiscard]] bool is_plain_tree(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// Returns whether the value is an object whose class is in the table.
[[nodiscard]] bool is_flattened(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// Returns the parts of a value. Each call charges the budget, even if the same container was
// charged before, because every copy takes time and memory. The state of a dict, where state_dict()
// stores `_metadata`, is ignored. The parts of other objects are their arguments, the elements
// added to them, and their attributes. Fails with kCorrupt for duplicate keys, with kUnsupported if
// the budget is used up, and with any error of a class's flattening function.
[[nodiscard]] Result<Children> children_of(const Pickle& pickle, NodeId id,
                                           const ClassFlattening* classes, WalkBudget& budget);

// Returns the items of a dict. Charges the budget for each item, and more for long keys. Fails with
// kCorrupt if a key is set twice. Python would keep the later value, but torch does not write such
// pickles. Requires: is_dict(pickle, id).
[[nodiscard]] Result<Items> paid_items(const Pickle& pickle, NodeId id, WalkBudget& budget);

}  // namespace onnx_external
