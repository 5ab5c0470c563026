// The reasons to refuse a mapping after the rules have run.
#pragma once

#include <span>
#include <string_view>

#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// One error with everything that is wrong, or success. docs/mapping.md explains each reason.
[[nodiscard]] Status check_refusals(const MappingTask& task, const Leftovers& leftovers);

// One of several graphs; their leftovers have the same keys.
struct JudgedGraph {
  std::string_view name;
  const MappingTask* task = nullptr;
  const Leftovers* leftovers = nullptr;
};

// The same for all of them: one error, in which each graph has its own lists, and the keys have
// one.
[[nodiscard]] Status check_set_refusals(std::span<const JudgedGraph> graphs);

}  // namespace onnx_external
