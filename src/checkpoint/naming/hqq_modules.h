// Recognizes the files that HQQ's save_quantized() writes, and names their tensors.
//
// Source: hqq/models/base.py (serialize_weights), hqq/core/quantize.py (HQQLinear.state_dict). Such
// a file is a dict of modules. The dict of a quantized module has its tensors and, as plain values,
// what is needed to read them. Versions before 0.2.0 keep both in a dict "meta" inside. All
// functions are pure and may be called from any thread.
#pragma once

#include <optional>

#include "checkpoint/naming/torch_names.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Names the tensors, and the plain values of quantized modules, "MODULE.name". Returns nullopt if
// the root is not a dict of dicts of which one has HQQ's "W_q" and its scales. Errors: kCorrupt for
// two values of the same name; kUnsupported beyond the limits of WalkBudget, and for names that are
// not UTF-8.
[[nodiscard]] Result<std::optional<NamedTensors>> name_hqq_modules(const Pickle& pickle);

// Returns whether a node is a plain value that can be added like a tensor: a bool, an integer, a
// string or a torch.Size.
[[nodiscard]] bool is_plain_value(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
