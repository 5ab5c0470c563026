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

// Accepts names that contain a match of a regular expression. A filter without an expression
// accepts all names. Copies of a filter share the expression.
class NameFilter {
 public:
  NameFilter() = default;

  // Creates a filter from an expression in RE2 syntax. Fails with kInvalidArgument for an invalid
  // expression.
  [[nodiscard]] static Result<NameFilter> make(const std::string& expression);

  [[nodiscard]] bool operator()(std::string_view name) const;
  [[nodiscard]] bool takes_all() const { return expression_ == nullptr; }

 private:
  std::shared_ptr<const re2::RE2> expression_;
};

// Removes the tensors, open slots and refused tensors that the filter does not accept, and the
// sizes and ties of removed tensors. The facts about the files stay unchanged.
void keep_matching(Inspection& inspection, const NameFilter& filter);

enum class ListOrder : std::uint8_t {
  kGiven,
  kName,
  kSize,  // largest first; equal sizes keep their order
};
void sort_tensors(Inspection& inspection, ListOrder order);

}  // namespace onnx_external
