// If several graphs share a checkpoint, finds the prefixes of tensor names that are names of
// graphs: "encoder." for encoder.onnx.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the name that may be the prefix of a graph's keys: "encoder" for "encoder.onnx".
[[nodiscard]] std::string_view own_name(std::string_view graph_name);

// If a prefix that is removed ends with the task's own name, returns the part in front of that
// name: "student." for "student.left.". The wrapper "module" may follow the name. Otherwise returns
// nullopt.
[[nodiscard]] std::optional<std::string_view> before_own_name(const MappingTask& task,
                                                              KeyPrefix::Kind kind,
                                                              std::string_view prefix);

struct NamedTask {
  std::string_view name;  // name of the graph
  const MappingTask* task = nullptr;
};

// Checks a --prefix, which applies to all graphs. Fails with kAmbiguous if it gives two graphs the
// same keys although keys under another prefix, which the caller does not ignore, fit about as
// well: one graph would get the weights of the other. Requires: the rules were applied.
[[nodiscard]] Status check_prefix_of_all(std::span<const NamedTask> graphs);

}  // namespace onnx_external
