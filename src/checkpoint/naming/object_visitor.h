// What stands behind the handles that a class's flattening function gets.
#pragma once

#include <cstdint>
#include <utility>

#include "checkpoint/naming/object_tree.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Pays for what one function looks at, and remembers the first error: the function itself sees
// empty parts from then on.
class ObjectVisitor {
 public:
  explicit ObjectVisitor(WalkBudget& budget) : budget_(budget) {}

  // False when nothing more may be looked at.
  [[nodiscard]] bool pay(std::uint64_t count);
  void refuse(Error error) { status_ = status_ ? Status(fail(std::move(error))) : status_; }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] WalkBudget& budget() { return budget_; }
  [[nodiscard]] static std::uint32_t node_of(const PickledValue& value) { return value.node_; }

 private:
  WalkBudget& budget_;
  Status status_;
};

}  // namespace onnx_external
