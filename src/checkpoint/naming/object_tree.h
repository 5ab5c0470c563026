// Flattens nested values: lists the parts of a value in a pickle, and gives each part a dotted
// path.
//
// The components of a path are the keys of dicts and the names of attributes as they are; indices
// for the elements of lists, tuples and sets; and for classes in the caller's table, the names that
// the class's function returns.
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

// One part of a value. Keys are referenced, not copied, because a small pickle may use one long key
// a million times.
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

// Returns a key or index as a component of a path; "#index" for a key that is neither a string nor
// an int. The view is valid until `buffer` or `children` changes.
[[nodiscard]] std::string_view component(const Pickle& pickle, const Children& children,
                                         const Child& child, std::string& buffer);

// True if children_of() may find parts in the value.
[[nodiscard]] bool has_children(const Pickle& pickle, NodeId id);

// True if the value may contain tensors of a state dict: for dicts, lists, tuples, objects
// constructed from arguments only (such as named tuples), and classes in the table.
[[nodiscard]] bool is_plain_tree(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// True for an object whose class is in the table.
[[nodiscard]] bool is_flattened(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// Returns the parts of a value. Each call charges the budget, also for a shared container, because
// every copy takes time and memory. The state of a dict is not part of its content (state_dict()
// stores `_metadata` there). The parts of other objects are their arguments, the elements added to
// them, and their attributes. kCorrupt for duplicate keys; kUnsupported if the budget is used up;
// errors of a class's function.
[[nodiscard]] Result<Children> children_of(const Pickle& pickle, NodeId id,
                                           const ClassFlattening* classes, WalkBudget& budget);

// Returns the items of a dict. Charges the budget for each item, and more for long keys. kCorrupt
// if a key is set twice (Python would keep the later value), because torch does not write such
// pickles. Requires: is_dict(pickle, id).
[[nodiscard]] Result<Items> paid_items(const Pickle& pickle, NodeId id, WalkBudget& budget);

}  // namespace onnx_external
