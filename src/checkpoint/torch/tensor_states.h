// Checks the state that a pickle sets on a tensor after the call that rebuilds it.
//
// Attributes that a user added do not affect the data and are ignored. State that could replace the
// data is an error. All functions are pure and may be called from any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the first `most` items of a dict that is pickled as a plain dict, or no items for None.
// Fails with kUnsupported for any other value, such as a call that returns a dict, because it could
// have further items. The message contains `what`, which describes the value, and `fix`.
[[nodiscard]] Result<std::vector<std::pair<NodeId, NodeId>>> few_items(const Pickle& pickle,
                                                                       NodeId id, std::size_t most,
                                                                       std::string_view what,
                                                                       std::string_view fix);

// Checks a state, which is a dict of attributes, (dict, slots), or a tuple for Tensor.__setstate__.
// The tuple (requires_grad, volatile, hooks), written by torch before 0.4, does not affect the
// data; a longer tuple holds another storage. Fails with kUnsupported if the state replaces the
// data.
[[nodiscard]] Status check_state(const Pickle& pickle, NodeId state);

// Calls check_state() for all states that were set on a tensor. Also fails with kCorrupt if items
// were added to the tensor.
[[nodiscard]] Status check_additions(const Pickle& pickle, NodeId tensor);

}  // namespace onnx_external
