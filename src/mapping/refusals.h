// Decides, after the mapping rules have run, whether the mapping succeeds, and otherwise returns
// one error that lists everything that is wrong.
#pragma once

#include <span>
#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// A graph and the verdicts on its slots and keys.
struct JudgedGraph {
  std::string_view name;  // the name for messages, if there are several graphs
  const MappingTask* task = nullptr;
  const Mapping* mapping = nullptr;  // all graphs have the same verdicts on the keys
};

// Returns success, or one error that lists everything that is wrong: the slots graph by graph, and
// the keys once for all graphs. docs/mapping.md explains each reason.
[[nodiscard]] Status check_refusals(std::span<const JudgedGraph> graphs);

}  // namespace onnx_external
