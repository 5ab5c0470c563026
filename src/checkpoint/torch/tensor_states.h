// Checks the state that a pickle sets on a tensor after the call that rebuilds it.
//
// Attributes that a user added do not affect the data and are ignored. State that could replace the
// data is an error. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the first `most` items of a dict that is pickled as a plain dict; none for None. For
// anything else, such as an object that would become a dict, fails with kUnsupported, because it
// could hide items; the message says `what` it is and `fix`.
[[nodiscard]] Result<std::vector<std::pair<NodeId, NodeId>>> few_items(const Pickle& pickle,
                                                                       NodeId id, std::size_t most,
                                                                       std::string_view what,
                                                                       std::string_view fix);

// Checks a state: a dict of attributes, (dict, slots), or a tuple for Tensor.__setstate__. Of these
// tuples, the one written by torch before 0.4, (requires_grad, volatile, hooks), does not affect
// the data; a longer one holds another storage. kUnsupported if the state replaces the data.
[[nodiscard]] Status check_state(const Pickle& pickle, NodeId state);

// Checks all states that were set on a tensor. kUnsupported likewise; kCorrupt if items were added
// to the tensor.
[[nodiscard]] Status check_additions(const Pickle& pickle, NodeId tensor);

}  // namespace onnx_external
