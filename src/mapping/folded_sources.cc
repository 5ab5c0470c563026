#include "mapping/folded_sources.h"

#include <algorithm>
#include <array>

#include "mapping/buffer_names.h"
#include "mapping/slot_roles.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

// Operations of torch from which a graph computes constants: tables, masks, positions and shapes.
// torch.export names a result after its operation. Names that a parameter is as likely to have
// ("mean", "std", "weight_norm") are left out, so that a value computed from one of them is an
// error.
constexpr std::array<std::string_view, 112> kOperations = {
    "_to_copy",
    "_unsafe_view",
    "abs",
    "add",
    "alias",
    "amax",
    "amin",
    "any",
    "arange",
    "argmax",
    "argmin",
    "as_strided",
    "atan2",
    "baddbmm",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "broadcast_to",
    "bucketize",
    "cat",
    "ceil",
    "clamp",
    "clone",
    "constant_pad_nd",
    "contiguous",
    "convert_element_type",
    "cos",
    "cumsum",
    "detach",
    "detach_",
    "diagonal",
    "div",
    "empty",
    "eq",
    "erf",
    "exp",
    "exp2",
    "expand",
    "expand_as",
    "expm1",
    "eye",
    "flip",
    "floor",
    "floor_divide",
    "fmod",
    "full",
    "full_like",
    "gather",
    "ge",
    "getitem",
    "gt",
    "index",
    "index_put",
    "index_select",
    "le",
    "lift_fresh_copy",
    "linspace",
    "log",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "masked_fill",
    "matmul",
    "maximum",
    "meshgrid",
    "minimum",
    "mm",
    "movedim",
    "mul",
    "ne",
    "neg",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "outer",
    "permute",
    "pow",
    "reciprocal",
    "remainder",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "rsqrt",
    "rsub",
    "scalar_tensor",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "slice",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "sub",
    "sym_size_int",
    "t",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "unsqueeze",
    "where",
};

// "add" of "add_3" and of "add_3_1".
std::string_view without_numbers(std::string_view name) {
  for (std::size_t end = name.size(); end > 0;) {
    const std::size_t last = name.find_last_not_of("0123456789", end - 1);
    if (last == std::string_view::npos || last + 1 == end || name[last] != '_' || last == 0) {
      return name.substr(0, end);
    }
    end = last;
  }
  return name;
}

// True for names like "arange_3" and "convert_element_type_default", which torch.export gives to
// results of operations.
bool is_result_of_operation(std::string_view name) {
  constexpr std::string_view kOverload = "_default";
  name = without_numbers(name);
  if (name.ends_with(kOverload)) {
    name.remove_suffix(kOverload.size());
  }
  return std::find(kOperations.begin(), kOperations.end(), name) != kOperations.end();
}

// Returns true for tensors that torch.export lifts out of the code of a module, under the module's
// name.
bool is_lifted_constant(std::string_view name) {
  name.remove_prefix(name.find_last_of('.') + 1);
  return without_numbers(name) == "lifted_tensor" || name.starts_with("_tensor_constant");
}

}  // namespace

bool FoldedSources::may_be_weight(std::string_view name) {
  if (is_lifted_name(name) || is_lifted_constant(name) || is_baked_buffer(name, {}) ||
      is_result_of_operation(name)) {
    return false;
  }
  if (!is_listed_) {
    list_values();
  }
  return !no_weights_.contains(name);
}

void FoldedSources::list_values() {
  is_listed_ = true;
  no_weights_.insert(graph_.defined_names.begin(), graph_.defined_names.end());
  for (const Slot& slot : graph_.slots) {
    const bool no_weight = slot.origin == SlotOrigin::kConstant ||
                           slot.origin == SlotOrigin::kLocalBuffer ||
                           slot.origin == SlotOrigin::kUserInput;
    if (no_weight) {
      no_weights_.insert(slot.name);
    }
  }
}

}  // namespace onnx_external
