// Filters and sorts the tensors that inspect-external lists.
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

// Accepts names that contain a match of an expression, or all names if there is none. Copies of a
// filter share the expression.
class NameFilter {
 public:
  NameFilter() = default;

  // The expression has RE2 syntax. Fails with kInvalidArgument for a bad expression.
  [[nodiscard]] static Result<NameFilter> make(const std::string& expression);

  [[nodiscard]] bool operator()(std::string_view name) const;
  [[nodiscard]] bool takes_all() const { return expression_ == nullptr; }

 private:
  std::shared_ptr<const re2::RE2> expression_;
};

// Removes the tensors that the filter does not accept, with their bytes and ties, and also the open
// slots and refused tensors that it does not accept. The facts about the files do not change.
void keep_matching(Inspection& inspection, const NameFilter& filter);

enum class ListOrder : std::uint8_t {
  kGiven,
  kName,
  kSize,  // largest first; equal sizes keep their order
};
void sort_tensors(Inspection& inspection, ListOrder order);

}  // namespace onnx_external
