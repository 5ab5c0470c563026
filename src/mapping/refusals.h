// Decides, after the rules have run, whether a mapping is an error.
#pragma once

#include <span>
#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// A graph and the verdicts on its slots and keys.
struct JudgedGraph {
  std::string_view name;  // of one of several graphs
  const MappingTask* task = nullptr;
  const Mapping* mapping = nullptr;  // all graphs have the same verdicts on keys
};

// Returns success, or one error that lists everything that is wrong: the slots graph by graph, and
// the keys once for all graphs. docs/mapping.md explains each reason.
[[nodiscard]] Status check_refusals(std::span<const JudgedGraph> graphs);

}  // namespace onnx_external
