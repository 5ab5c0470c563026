// Flattens nested values: lists the parts of a value of a pickle, and names each in a dotted path.
//
// Keys of dicts and attribute names are used as they are, elements of lists, tuples and sets by
// index, and classes in the caller's table as their function says.
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

// One part of a value. Keys are not copied, because a small pickle may use one long key a million
// times.
struct Child {
  static constexpr NodeId kIndex = 0xffffffff;  // named by its index
  static constexpr NodeId kNamed = 0xfffffffe;  // named Children::names[index]
  NodeId key;
  std::uint32_t index;
  NodeId node;
};
struct Children {
  std::vector<Child> list;
  std::vector<std::string> names;  // from a class's function
};

// A key or index as a component of a path; "#index" for a key that is neither string nor int.
// The view lives as long as `buffer` and `children` are not changed.
[[nodiscard]] std::string_view component(const Pickle& pickle, const Children& children,
                                         const Child& child, std::string& buffer);

// True if children_of() may find parts in the value.
[[nodiscard]] bool has_children(const Pickle& pickle, NodeId id);

// True if the tensors of a state dict may be in the value: for dicts, lists, tuples, objects
// made from arguments alone (such as named tuples), and classes of the table.
[[nodiscard]] bool is_plain_tree(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// True for an object whose class is in the table.
[[nodiscard]] bool is_flattened(const Pickle& pickle, const ClassFlattening* classes, NodeId id);

// The parts of a value. Each call charges the budget, also for a shared container, because every
// copy takes time and memory. The state of a dict is not part of its content (state_dict()'s
// `_metadata` is stored there). The parts of other objects are arguments, added elements and
// attributes. kCorrupt for duplicate keys; kUnsupported if the budget is used up; errors of a
// class's function.
[[nodiscard]] Result<Children> children_of(const Pickle& pickle, NodeId id,
                                           const ClassFlattening* classes, WalkBudget& budget);

// The items of a dict. Charges the budget for each item, and more for long keys. A pickle that
// sets a key twice (Python would keep the later value) was not written by torch.
// Requires: is_dict(pickle, id).
[[nodiscard]] Result<Items> paid_items(const Pickle& pickle, NodeId id, WalkBudget& budget);

}  // namespace onnx_external
