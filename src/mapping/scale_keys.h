// Finds the keys (tensors of a checkpoint) that are scales of float8 weights. Without its scale,
// such a weight has values that are wrong by a factor of hundreds.
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
  // `weights` states for each key whether it may be a weight with a scale. `task` must outlive this
  // object.
  ScaleKeys(const MappingTask& task, const std::vector<bool>& weights);

  // Returns the weight whose scale the key is. The name of such a key contains the name of the
  // weight or of its module, and the key has one value in total, or one for each row, column or
  // block of the weight. If a single tensor has the scales of all weights, returns the first
  // weight. Returns nullopt for a bias.
  [[nodiscard]] std::optional<std::uint32_t> weight_of(std::uint32_t key);

 private:
  void add(const std::string& name, std::uint32_t weight);
  [[nodiscard]] std::optional<std::uint32_t> named_in(std::string_view name, const Shape& shape);

  const MappingTask& task_;
  OwnedNameMap<std::uint32_t> weights_;  // by the refined names of the weights and of their modules
  std::size_t weight_count_ = 0;
  std::uint32_t first_ = 0;
  std::size_t look_ups_ = 0;
};

// Returns for each key whether it fills a slot whose type is not float8. (A graph with a float8
// slot is itself quantized, and multiplies by the scale.)
[[nodiscard]] std::vector<bool> used_as_floats(const MappingTask& task);

}  // namespace onnx_external
