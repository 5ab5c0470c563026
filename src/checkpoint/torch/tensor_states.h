// Checks the state that a pickle sets on a tensor after the call that makes it.
//
// Attributes that a user added do not change the data, and are ignored. State that could replace
// the data is an error. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The items of a dict that torch pickles plainly, at most `most`; none for None. kUnsupported for
// anything else, with `what` it is and `fix`: an object that would become a dict could hide some.
[[nodiscard]] Result<std::vector<std::pair<NodeId, NodeId>>> few_items(const Pickle& pickle,
                                                                       NodeId id, std::size_t most,
                                                                       std::string_view what,
                                                                       std::string_view fix);

// A dict of attributes, or (dict, slots). Of Tensor.__setstate__'s tuples that of torch before 0.4,
// (requires_grad, volatile, hooks), says nothing about the data; a longer one holds another
// storage. kUnsupported if the state replaces the data.
[[nodiscard]] Status check_state(const Pickle& pickle, NodeId state);

// Checks all states of the object that is a tensor. kUnsupported likewise; kCorrupt if items were
// added to it.
[[nodiscard]] Status check_additions(const Pickle& pickle, NodeId tensor);

}  // namespace onnx_external
