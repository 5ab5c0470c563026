// The paths on a command line: graphs and checkpoints.
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

// Divides the arguments into graphs and checkpoints. The first one is a graph; the others are
// graphs if their content or the form NAME.onnx=PATH says so. If the first one is not recognized as
// a graph, all others count as checkpoints, so that the error says what the first one is.
[[nodiscard]] GraphArguments sort_arguments(const std::filesystem::path& first,
                                            std::span<const std::filesystem::path> others);

// Returns whether the content of a file is that of an ONNX model, as far as its first byte tells.
[[nodiscard]] bool is_graph(const std::filesystem::path& path);

// Returns the error in the names of several graphs, or "".
[[nodiscard]] std::string wrong_graph_names(std::span<const GraphToSave> graphs);

// Requires: the graph is a file.
[[nodiscard]] const std::filesystem::path& path_of(const GraphToSave& graph);

}  // namespace onnx_external
