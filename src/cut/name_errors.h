// Errors about names that a graph does not have.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cut/value_graph.h"
#include "onnx_external/result.h"

namespace onnx_external {

// kNotFound: "WHAT; did you mean 'x', 'y'?", with the nearest of `known`, if some are near.
[[nodiscard]] Error not_found_error(std::string what, std::string_view name,
                                    std::span<const std::string_view> known);

// kCorrupt: `node` reads a value that nothing defines.
[[nodiscard]] Error undefined_error(const ValueGraph& graph, NodeId node, ValueId value);

}  // namespace onnx_external
