#include "checkpoint/naming/object_tree.h"

#include <exception>
#include <span>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/naming/object_visitor.h"

namespace onnx_external {
namespace {

void add_child(Children& out, NodeId key, NodeId node) {
  out.list.push_back({key, static_cast<std::uint32_t>(out.list.size()), node});
}

void add_elements(std::span<const NodeId> elements, Children& out) {
  for (const NodeId element : elements) {
    add_child(out, Child::kIndex, element);
  }
}

Status add_dict_items(const Pickle& pickle, NodeId id, WalkBudget& budget, Children& out) {
  TRY_ASSIGN(const auto items, paid_items(pickle, id, budget));
  for (const auto& [key, value] : items) {
    add_child(out, key, value);
  }
  return {};
}

// The parts of an object of an unknown class that may hold tensors.
Status add_object_parts(const Pickle& pickle, NodeId id, WalkBudget& budget, Children& out) {
  if (is_dict(pickle, id)) {
    return add_dict_items(pickle, id, budget, out);
  }
  if (!is_opaque(pickle, id)) {
    return {};
  }
  add_elements(pickle.tuple(pickle.arguments(id)), out);
  add_elements(pickle.elements(id), out);
  for (const NodeId state : pickle.states(id)) {
    TRY(budget.visit(pickle.tuple(state).size()));  // many objects may share one tuple as their
                                                    // state
    if (is_dict(pickle, state)) {
      TRY(add_dict_items(pickle, state, budget, out));
    }
    for (const NodeId part : pickle.tuple(state)) {  // (dict, slots) among others
      if (is_dict(pickle, part)) {
        TRY(add_dict_items(pickle, part, budget, out));
      } else {
        add_child(out, Child::kIndex, part);
      }
    }
  }
  return {};
}

const FlattenFunction* function_for(const Pickle& pickle, const ClassFlattening* classes,
                                    NodeId id) {
  if (classes == nullptr || classes->empty() || pickle.kind(id) != NodeKind::kObject ||
      is_tensor(pickle, id)) {
    return nullptr;
  }
  return classes->find(type_name(pickle, id));
}

// Calls the caller's code and stops its exceptions.
Result<std::vector<FlattenedPart>> call_function(const FlattenFunction& function,
                                                 const PickledValue& object) {
  try {
    return function(object);
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                std::string("its flattening function threw: ") + error.what());
  }
}

Status add_flattened(const Pickle& pickle, NodeId id, const FlattenFunction& function,
                     WalkBudget& budget, Children& out) {
  ObjectVisitor visitor(pickle, budget);
  auto parts = call_function(function, PickledValueAccess::make(visitor, id));
  if (!visitor.status()) {
    return visitor.status();
  }
  if (!parts) {
    return fail_in(quote(type_name(pickle, id)), std::move(parts).error());
  }
  for (FlattenedPart& part : *parts) {
    TRY(budget.name(part.name.size()));
    out.list.push_back({Child::kNamed, static_cast<std::uint32_t>(out.names.size()),
                        PickledValueAccess::node_of(part.value)});
    out.names.push_back(std::move(part.name));
  }
  return {};
}

}  // namespace

std::string_view component(const Pickle& pickle, const Children& children, const Child& child,
                           std::string& buffer) {
  if (child.key == Child::kNamed) {
    return children.names[child.index];
  }
  if (child.key == Child::kIndex) {
    buffer = std::to_string(child.index);
  } else if (const auto text = pickle.string(child.key)) {
    return *text;
  } else if (const auto number = pickle.integer(child.key)) {
    buffer = std::to_string(*number);
  } else {
    buffer = '#';
    buffer += std::to_string(child.index);
  }
  return buffer;
}

Result<Items> paid_items(const Pickle& pickle, NodeId id, WalkBudget& budget) {
  TRY_ASSIGN(auto items, dict_items(pickle, id));
  const auto name_of = [&](std::size_t item) { return pickle.string(items[item].first); };
  TRY(budget.visit_items(pickle, items));
  NameIndexSet names([&](std::uint32_t item) { return *name_of(item); }, items.size());
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (const auto name = name_of(i); name && names.add(i) != i) {
      return fail(ErrorCode::kCorrupt, "two values have the name " + quote(*name));
    }
  }
  return items;
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

bool is_plain_tree(const Pickle& pickle, const ClassFlattening* classes, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
    case NodeKind::kList:
    case NodeKind::kTuple:
      return true;
    case NodeKind::kObject:
      break;
    default:
      return false;
  }
  if (is_dict(pickle, id) || function_for(pickle, classes, id) != nullptr) {
    return true;
  }
  return is_opaque(pickle, id) && !pickle.tuple(pickle.arguments(id)).empty() &&
         !pickle.has_elements(id) && pickle.states(id, 1).empty();
}

bool is_flattened(const Pickle& pickle, const ClassFlattening* classes, NodeId id) {
  return function_for(pickle, classes, id) != nullptr;
}

Result<Children> children_of(const Pickle& pickle, NodeId id, const ClassFlattening* classes,
                             WalkBudget& budget) {
  Children out;
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
      TRY(add_dict_items(pickle, id, budget, out));
      break;
    case NodeKind::kList:
    case NodeKind::kSet:
      add_elements(pickle.elements(id), out);
      break;
    case NodeKind::kTuple:
      add_elements(pickle.tuple(id), out);
      break;
    case NodeKind::kObject:
      if (const FlattenFunction* function = function_for(pickle, classes, id)) {
        TRY(add_flattened(pickle, id, *function, budget, out));
      } else {
        TRY(add_object_parts(pickle, id, budget, out));
      }
      break;
    default:
      break;
  }
  TRY(budget.visit(out.list.size()));
  return out;
}

}  // namespace onnx_external
