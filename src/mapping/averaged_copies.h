// Recognizes keys that are averaged copies (EMA) of weights, under names made of the weights'.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mapping/task.h"

namespace onnx_external {

struct AveragedCopy {
  std::uint32_t key = 0;
  std::uint32_t weight = 0;  // the used key that it is a copy of
  std::string mark;  // the start of its name that says so: "ema_"; "" if it has no such start
};

// Returns the copies among `keys`, in their order: 'ema_backbone_conv_weight' of
// 'backbone.conv.weight', 'model.ema.fc.bias' of 'model.fc.bias'. Their shapes are the weights'.
[[nodiscard]] std::vector<AveragedCopy> find_averaged_copies(const MappingTask& task,
                                                             std::span<const std::uint32_t> keys);

// The expression for --ignore that matches the copies: "^ema_".
[[nodiscard]] std::string expression_for(std::span<const AveragedCopy> copies);

}  // namespace onnx_external
