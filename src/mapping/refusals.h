// The reasons to refuse a mapping after the rules have run.
#pragma once

#include <span>
#include <string_view>

#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// A graph whose slots and keys have been sorted.
struct JudgedGraph {
  std::string_view name;  // of one of several graphs
  const MappingTask* task = nullptr;
  const Leftovers* leftovers = nullptr;  // all graphs have the same lists of keys
};

// One error with everything that is wrong, or success: each graph has lists of its slots, and the
// keys have lists that all graphs share. docs/mapping.md explains each reason.
[[nodiscard]] Status check_refusals(std::span<const JudgedGraph> graphs);

}  // namespace onnx_external
