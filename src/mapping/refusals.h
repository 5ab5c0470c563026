// Decides whether the mapping succeeds, once the mapping rules have been applied. If not, returns
// one error that lists all faults.
#pragma once

#include <span>
#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// A graph and the verdicts for its slots and keys.
struct JudgedGraph {
  std::string_view name;  // the name for messages, if there are several graphs
  const MappingTask* task = nullptr;
  const Mapping* mapping = nullptr;  // all graphs have the same verdicts for the keys
};

// Fails with one error that lists all faults, with slots graph by graph, and keys once for all
// graphs. docs/mapping.md explains each kind of fault.
[[nodiscard]] Status check_refusals(std::span<const JudgedGraph> graphs);

}  // namespace onnx_external
