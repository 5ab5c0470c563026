// What a mapping is refused for once the rules have run. Each message lists what it is about and
// names the option that overrides it.
#pragma once

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// What is left over on both sides.
struct Leftovers {
  std::vector<std::uint32_t> keys;  // usable keys without a slot, not tied to a used one
  std::vector<TiedKey> tied;
  std::vector<std::uint32_t> other_keys;     // not under --prefix
  std::vector<std::uint32_t> missing_slots;  // slots that need data and have none
  std::vector<std::string> inputs_left;      // the caller's
  std::vector<std::uint32_t> kept_slots;     // initializers that keep their data
};

[[nodiscard]] Leftovers find_leftovers(const MappingTask& task);

// The first refusal that applies, in the order of docs/mapping.md.
[[nodiscard]] Status check_refusals(const MappingTask& task, const Leftovers& leftovers);

}  // namespace onnx_external
