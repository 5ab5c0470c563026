// Finds keys that scale float8 weights of the checkpoint: without them, the weights are off by a
// factor of hundreds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "mapping/task.h"

namespace onnx_external {

class ScaleKeys {
 public:
  // `weights`: which keys may be scaled, by their indexes. `task` must outlive this.
  ScaleKeys(const MappingTask& task, const std::vector<bool>& weights);

  // The weight that the key scales: one whose module, or the weight itself, is in the key's name,
  // and to which the key's shape fits, as one number, or as one for each row, column or block. A
  // single tensor of all scales, one for each weight, scales the first. Nullopt for a bias.
  [[nodiscard]] std::optional<std::uint32_t> weight_of(std::uint32_t key);

 private:
  void add(const std::string& name, std::uint32_t weight);
  [[nodiscard]] std::optional<std::uint32_t> named_in(std::string_view name, const Shape& shape);

  const MappingTask& task_;
  OwnedNameMap<std::uint32_t> weights_;  // by refined names of weights and their modules
  std::size_t weight_count_ = 0;
  std::uint32_t first_ = 0;
  std::size_t look_ups_ = 0;
};

// The keys that fill slots of other types than float8. A slot of that type belongs to a quantized
// graph, which also has the scale.
[[nodiscard]] std::vector<bool> used_as_floats(const MappingTask& task);

}  // namespace onnx_external
