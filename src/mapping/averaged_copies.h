// Recognizes keys (tensors of a checkpoint) that are averaged copies (EMA) of weights. Such keys
// have names that are derived from the names of the weights.
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
  std::uint32_t weight = 0;  // the used key of which `key` is a copy
  std::string mark;  // beginning of its name that is typical of copies, such as "ema_"; or ""
};

// Returns the copies among `keys`, in the order of `keys`. For example, 'ema_backbone_conv_weight'
// is a copy of 'backbone.conv.weight', and 'model.ema.fc.bias' of 'model.fc.bias'. A copy has the
// same shape as its weight.
[[nodiscard]] std::vector<AveragedCopy> find_averaged_copies(const MappingTask& task,
                                                             std::span<const std::uint32_t> keys);

// Returns the regular expression for --ignore that matches the copies: "^ema_".
[[nodiscard]] std::string expression_for(std::span<const AveragedCopy> copies);

}  // namespace onnx_external
