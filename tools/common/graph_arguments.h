// The positional arguments of save-external: graphs and checkpoints.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/save_external.h"

namespace onnx_external {

struct GraphArguments {
  std::vector<GraphToSave> graphs;  // paths; at least one
  std::vector<std::filesystem::path> checkpoints;
};

// Tells the graphs among the arguments behind the first one, which is a graph, from checkpoints: by
// content, or by their form NAME.onnx=PATH. If the first one has neither, all others are
// checkpoints, so that an error says what it is instead.
[[nodiscard]] GraphArguments sort_arguments(const std::filesystem::path& first,
                                            std::span<const std::filesystem::path> others);

// Returns the error in the names of several graphs, or "".
[[nodiscard]] std::string wrong_graph_names(std::span<const GraphToSave> graphs);

// Requires: the graph is a file.
[[nodiscard]] const std::filesystem::path& path_of(const GraphToSave& graph);

}  // namespace onnx_external
