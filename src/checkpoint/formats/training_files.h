// Recognizes, by their names, files that a training run writes next to the weights or in place of
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

// Recognizes files that are parts of one checkpoint, each saved by a different rank, and says how
// to join them: "'consolidated.00.pth' and 'consolidated.01.pth' are parts ...". The paths of such
// parts differ only in numbers. Returns "" if the files are not such parts.
[[nodiscard]] std::string rank_parts(std::span<const std::filesystem::path> paths);

}  // namespace onnx_external
