// Recognizes prefixes of tensor names that are names of graphs, such as "encoder." for
// encoder.onnx, if several graphs share a checkpoint.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the name of a graph without its suffix, which may be the prefix of the graph's keys:
// "encoder" for "encoder.onnx".
[[nodiscard]] std::string_view own_name(std::string_view graph_name);

// If `prefix` is to be removed and ends with the name of the task's graph, returns the part before
// that name, such as "student." for "student.left.". The wrapper "module" may follow the name.
// Otherwise returns nullopt.
[[nodiscard]] std::optional<std::string_view> before_own_name(const MappingTask& task,
                                                              KeyPrefix::Kind kind,
                                                              std::string_view prefix);

struct NamedTask {
  std::string_view name;  // name of the graph
  const MappingTask* task = nullptr;
};

// Checks a --prefix, which applies to all graphs. It is ambiguous if two graphs get the same keys
// although keys under another prefix match about as many slots, because one graph may then get the
// weights of the other. In this case fails with kAmbiguous, unless the options ignore the other
// keys. Requires: the rules were applied.
[[nodiscard]] Status check_prefix_of_all(std::span<const NamedTask> graphs);

}  // namespace onnx_external
