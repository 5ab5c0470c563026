// Which of the inspected tensors are listed, and in which order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "inspect/inspect.h"
#include "onnx_external/result.h"

namespace re2 {
class RE2;
}

namespace onnx_external {

// Names that contain a match of an expression; every name without one. Copies share it.
class NameFilter {
 public:
  NameFilter() = default;

  // RE2; kInvalidArgument for one that is none.
  [[nodiscard]] static Result<NameFilter> make(const std::string& expression);

  [[nodiscard]] bool operator()(std::string_view name) const;
  [[nodiscard]] bool takes_all() const { return expression_ == nullptr; }

 private:
  std::shared_ptr<const re2::RE2> expression_;
};

// Leaves out what the filter does not take: tensors, their bytes, ties, open slots and what was
// refused. The facts of the files stay.
void keep_matching(Inspection& inspection, const NameFilter& filter);

enum class ListOrder : std::uint8_t {
  kGiven,
  kName,
  kSize,  // the largest first; of equal ones in the given order
};
void sort_tensors(Inspection& inspection, ListOrder order);

}  // namespace onnx_external
