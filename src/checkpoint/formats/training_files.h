// Recognizes, by their names, files that a training wrote beside or in place of the weights.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

// Returns whether a file has the state of a training (an optimizer, a scheduler, random numbers),
// such as "optimizer.pt" of a Trainer, and no weights.
[[nodiscard]] bool is_training_state(std::string_view name);

// Says that files are parts of one checkpoint, of which each rank saved its own, and how to join
// them: "'consolidated.00.pth' and 'consolidated.01.pth' are parts ...". Judges by the paths, which
// must differ in numbers only. Empty if they are not such parts.
[[nodiscard]] std::string rank_parts(std::span<const std::filesystem::path> paths);

}  // namespace onnx_external
