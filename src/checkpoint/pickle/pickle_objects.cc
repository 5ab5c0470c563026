// The opcodes that make collections and objects or add to them.

#include "base/bad_input.h"
#include "base/try.h"
#include "checkpoint/pickle/pickle_machine.h"

namespace onnx_external {
namespace {

std::string_view kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kNone:
      return "None";
    case NodeKind::kBool:
      return "a bool";
    case NodeKind::kInteger:
    case NodeKind::kBigInteger:
      return "an int";
    case NodeKind::kFloat:
      return "a float";
    case NodeKind::kString:
      return "a string";
    case NodeKind::kBytes:
      return "bytes";
    case NodeKind::kTuple:
      return "a tuple";
    case NodeKind::kList:
      return "a list";
    case NodeKind::kDict:
      return "a dict";
    case NodeKind::kSet:
      return "a set";
    case NodeKind::kGlobal:
      return "a global name";
    case NodeKind::kObject:
      return "an object";
    case NodeKind::kPersistent:
      return "a storage";
    case NodeKind::kBlock:
      break;
  }
  return "a block";
}

}  // namespace

Status PickleMachine::pop_into_tuple(std::size_t count) {
  TRY(need(count));
  return push(add_tuple(stack_.size() - count));
}

Status PickleMachine::collect_marked(NodeKind kind) {
  TRY_ASSIGN(const auto from, take_mark());
  if (kind == NodeKind::kTuple) {
    return push(add_tuple(from));
  }
  const auto id = add({.kind = kind});
  if (!id) {
    return fail(id.error());
  }
  TRY(append_block(*id, kind, from));
  return push(id);
}

Status PickleMachine::append_one() {
  TRY(need(2));
  return append_block(stack_[stack_.size() - 2], NodeKind::kList, stack_.size() - 1);
}

Status PickleMachine::append_marked(NodeKind target) {
  TRY_ASSIGN(const auto from, take_mark());
  const std::size_t fence = marks_.empty() ? 0 : marks_.back();
  if (from == fence) {
    return corrupt("the stack has no object to add to");
  }
  return append_block(stack_[from - 1], target, from);
}

Status PickleMachine::set_item() {
  TRY(need(3));
  return append_block(stack_[stack_.size() - 3], NodeKind::kDict, stack_.size() - 2);
}

Status PickleMachine::global_from_lines() {
  const auto module = line();
  TRY_ASSIGN(const auto name, module ? line() : module);
  const auto module_id = add_text(NodeKind::kString, *module);
  TRY_ASSIGN(const auto name_id, module_id ? add_text(NodeKind::kString, name) : module_id);
  return push_new({.kind = NodeKind::kGlobal, .first = *module_id, .second = name_id});
}

Status PickleMachine::global_from_stack() {
  TRY(need(2));
  const NodeId name = stack_.back();
  const NodeId module = stack_[stack_.size() - 2];
  if (!pickle_.string(name) || !pickle_.string(module)) {
    return corrupt("a global's module and name must be strings");
  }
  stack_.resize(stack_.size() - 2);
  return push_new({.kind = NodeKind::kGlobal, .first = module, .second = name});
}

// A class may be a persistent id, because legacy torch files store the source of modules there.
Status PickleMachine::check_callable(NodeId id) const {
  switch (pickle_.kind(id)) {
    case NodeKind::kGlobal:
    case NodeKind::kObject:
    case NodeKind::kPersistent:
      return {};
    default:
      return corrupt("cannot call " + std::string(kind_name(pickle_.kind(id))));
  }
}

// REDUCE and NEWOBJ: callable, arguments. NEWOBJ_EX: and keyword arguments, kept as a state.
Status PickleMachine::call(std::size_t operands) {
  TRY(need(operands));
  const std::size_t from = stack_.size() - operands;
  TRY(check_callable(stack_[from]));
  if (pickle_.kind(stack_[from + 1]) != NodeKind::kTuple) {
    return corrupt("arguments are not a tuple");
  }
  const auto object = add_object(stack_[from], stack_[from + 1]);
  if (!object) {
    return fail(object.error());
  }
  if (operands == 3) {
    TRY(append_block(*object, NodeKind::kObject, from + 2));
  }
  stack_.resize(from);
  return push(object);
}

// INST: module and name as lines, arguments from the mark. OBJ: class and arguments from the mark.
Status PickleMachine::call_marked(bool symbol_in_lines) {
  TRY_ASSIGN(auto from, take_mark());
  NodeId callable = 0;
  if (symbol_in_lines) {
    TRY(global_from_lines());
    callable = stack_.back();
    stack_.pop_back();
  } else {
    if (from == stack_.size()) {
      return corrupt("no class above the mark");
    }
    callable = stack_[from++];
    TRY(check_callable(callable));
  }
  TRY_ASSIGN(const auto arguments, add_tuple(from));
  if (!symbol_in_lines) {
    stack_.pop_back();  // the class
  }
  return push(add_object(callable, arguments));
}

Status PickleMachine::build() {
  TRY(need(2));
  return append_block(stack_[stack_.size() - 2], NodeKind::kObject, stack_.size() - 1);
}

Status PickleMachine::persistent() {
  TRY(need(1));
  const NodeId id = stack_.back();
  stack_.pop_back();
  return push_new({.kind = NodeKind::kPersistent, .first = id});
}

Result<NodeId> PickleMachine::add_tuple(std::size_t from) {
  const std::size_t first = pickle_.children_.size();
  const std::size_t count = stack_.size() - from;
  if (count == 0) {
    return kEmptyTupleId;
  }
  pickle_.children_.insert(pickle_.children_.end(),
                           stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  return add({.kind = NodeKind::kTuple,
              .first = static_cast<std::uint32_t>(first),
              .second = static_cast<std::uint32_t>(count)});
}

Result<NodeId> PickleMachine::add_object(NodeId callable, NodeId arguments) {
  return add({.kind = NodeKind::kObject, .first = callable, .second = arguments});
}

// Takes the values from `from` on off the stack and adds them to `owner`: to its list (kList), set
// (kSet), dict items (kDict) or, for an object, states (kObject).
Status PickleMachine::append_block(NodeId owner, NodeKind part, std::size_t from) {
  const NodeKind kind = pickle_.kind(owner);
  if (kind != part && kind != NodeKind::kObject) {
    return corrupt("cannot add to " + std::string(kind_name(kind)) +
                   " items that another type of object has");
  }
  const std::size_t count = stack_.size() - from;
  if (part == NodeKind::kDict && count % 2 != 0) {
    return corrupt("a key without a value");
  }
  if (count == 0) {
    return {};
  }
  const std::size_t first = pickle_.children_.size();
  pickle_.children_.insert(pickle_.children_.end(),
                           stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  TRY_ASSIGN(const auto block, add({.kind = NodeKind::kBlock,
                                    .first = static_cast<std::uint32_t>(first),
                                    .second = static_cast<std::uint32_t>(count)}));
  pickle_.link(owner, part, block);
  return {};
}

}  // namespace onnx_external
