// Recognizes, by their names, files that a training run wrote next to the weights or instead of
// them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

// Returns whether a file holds the state of a training run (an optimizer, a scheduler, random
// number generators) and no weights, such as the "optimizer.pt" that transformers' Trainer writes.
[[nodiscard]] bool is_training_state(std::string_view name);

// Recognizes files that are parts of one checkpoint, where each rank saved its own part, and says
// how to join them: "'consolidated.00.pth' and 'consolidated.01.pth' are parts ...". Looks only at
// the paths, which must differ only in numbers. Returns "" if they are not such parts.
[[nodiscard]] std::string rank_parts(std::span<const std::filesystem::path> paths);

}  // namespace onnx_external
