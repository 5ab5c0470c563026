// Implements PickledValue, the handle through which a class's flattening function reads a value in
// a pickle.
#pragma once

#include <cstdint>
#include <utility>

#include "checkpoint/naming/object_tree.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Charges the budget for everything that one call of a flattening function reads, and records the
// first error. After an error, accessors return only empty results.
class PickledValue::Visitor {
 public:
  Visitor(const Pickle& pickle, WalkBudget& budget) : pickle_(pickle), budget_(budget) {}

  // Charges the budget. Returns false if the budget is used up or there was an error.
  [[nodiscard]] bool pay(std::uint64_t count);
  void refuse(Error error) { status_ = status_ ? Status(fail(std::move(error))) : status_; }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] WalkBudget& budget() { return budget_; }
  [[nodiscard]] const Pickle& pickle() const { return pickle_; }

 private:
  const Pickle& pickle_;
  WalkBudget& budget_;
  Status status_;
};

// Gives the files in this folder access to the node of a PickledValue.
struct PickledValueAccess {
  using Visitor = PickledValue::Visitor;

  [[nodiscard]] static PickledValue make(Visitor& visitor, NodeId node) { return {visitor, node}; }
  [[nodiscard]] static NodeId node_of(const PickledValue& value) { return value.node_; }
};
using ObjectVisitor = PickledValueAccess::Visitor;

}  // namespace onnx_external
