#include "onnx_external/class_flattening.h"

#include <utility>

#include "checkpoint/naming/object_visitor.h"

namespace onnx_external {
namespace {

std::vector<NodeId> elements_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) == NodeKind::kTuple) {
    const std::span<const NodeId> tuple = pickle.tuple(id);
    return {tuple.begin(), tuple.end()};
  }
  return has_children(pickle, id) && pickle.kind(id) != NodeKind::kDict ? pickle.elements(id)
                                                                        : std::vector<NodeId>();
}

std::vector<PickledValue> values_of(const std::vector<NodeId>& nodes, ObjectVisitor& visitor) {
  std::vector<PickledValue> values;
  if (visitor.pay(nodes.size())) {
    for (const NodeId node : nodes) {
      values.push_back(PickledValueAccess::make(visitor, node));
    }
  }
  return values;
}

Items items_of(NodeId id, ObjectVisitor& visitor) {
  const Pickle& pickle = visitor.pickle();
  if (!visitor.status() || !is_dict(pickle, id)) {
    return {};
  }
  auto items = paid_items(pickle, id, visitor.budget());
  if (!items) {
    visitor.refuse(std::move(items).error());
    return {};
  }
  return *std::move(items);
}

}  // namespace

bool PickledValue::Visitor::pay(std::uint64_t count) {
  if (status_) {
    status_ = budget_.visit(count);
  }
  return status_.has_value();
}

PickledKind PickledValue::kind() const {
  const Pickle& pickle = visitor_->pickle();
  if (is_tensor(pickle, node_)) {
    return PickledKind::kTensor;
  }
  if (is_dict(pickle, node_)) {
    return PickledKind::kDict;
  }
  switch (pickle.kind(node_)) {
    case NodeKind::kNone:
      return PickledKind::kNone;
    case NodeKind::kList:
    case NodeKind::kSet:
      return PickledKind::kList;
    case NodeKind::kTuple:
      return PickledKind::kTuple;
    case NodeKind::kObject:
      return PickledKind::kObject;
    default:
      return PickledKind::kOther;
  }
}

std::string PickledValue::type() const {
  const Pickle& pickle = visitor_->pickle();
  return pickle.kind(node_) == NodeKind::kObject ? type_name(pickle, node_) : std::string();
}

std::vector<PickledValue> PickledValue::elements() const {
  const Pickle& pickle = visitor_->pickle();
  return values_of(elements_of(pickle, node_), *visitor_);
}

std::vector<std::pair<std::string, PickledValue>> PickledValue::items() const {
  const Pickle& pickle = visitor_->pickle();
  std::vector<std::pair<std::string, PickledValue>> out;
  for (const auto& [key, value] : items_of(node_, *visitor_)) {
    if (const auto text = pickle.string(key)) {
      out.emplace_back(std::string(*text), PickledValue(*visitor_, value));
    } else if (const auto number = pickle.integer(key)) {
      out.emplace_back(std::to_string(*number), PickledValue(*visitor_, value));
    }
  }
  return out;
}

std::vector<PickledValue> PickledValue::arguments() const {
  const Pickle& pickle = visitor_->pickle();
  if (pickle.kind(node_) != NodeKind::kObject) {
    return {};
  }
  return values_of(elements_of(pickle, pickle.arguments(node_)), *visitor_);
}

std::optional<PickledValue> PickledValue::attribute(std::string_view name) const {
  const Pickle& pickle = visitor_->pickle();
  std::optional<PickledValue> found;
  if (pickle.kind(node_) != NodeKind::kObject) {
    return found;
  }
  const std::vector<NodeId> states = pickle.states(node_);
  std::vector<NodeId> dicts;
  if (!visitor_->pay(states.size())) {
    return found;
  }
  for (const NodeId state : states) {
    dicts.push_back(state);
    constexpr std::size_t kDictAndSlots = 2;
    if (pickle.tuple(state).size() == kDictAndSlots) {
      const std::vector<NodeId> parts = elements_of(pickle, state);
      dicts.insert(dicts.end(), parts.begin(), parts.end());
    }
  }
  for (const NodeId dict : dicts) {
    for (const auto& [key, value] : items_of(dict, *visitor_)) {
      if (pickle.string(key) == name) {
        found = PickledValue(*visitor_, value);
      }
    }
  }
  return found;
}

void ClassFlattening::register_class_flattening(std::string qualified_name,
                                                FlattenFunction function) {
  functions_.insert_or_assign(std::move(qualified_name), std::move(function));
}

bool ClassFlattening::unregister_class_flattening(std::string_view qualified_name) {
  const auto found = functions_.find(qualified_name);
  if (found == functions_.end()) {
    return false;
  }
  functions_.erase(found);
  return true;
}

const FlattenFunction* ClassFlattening::find(std::string_view qualified_name) const {
  auto found = functions_.find(qualified_name);
  if (found == functions_.end()) {
    const std::size_t dot = qualified_name.rfind('.');
    found = functions_.find(std::string(qualified_name.substr(0, dot)) + ".*");
  }
  return found == functions_.end() ? nullptr : &found->second;
}

}  // namespace onnx_external
