// Sorts the paths on a command line into graphs and checkpoints.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/save_external.h"

namespace onnx_external {

struct GraphArguments {
  std::vector<GraphToSave> graphs;  // at least one; each is a path
  std::vector<std::filesystem::path> checkpoints;
};

// Divides the arguments into graphs and checkpoints. The first argument is a graph. Any other
// argument is a graph if its content is that of a graph, or if it has the form NAME.onnx=PATH. If
// the first argument is not recognized as a graph, all others count as checkpoints, so that the
// error is about the first argument.
[[nodiscard]] GraphArguments sort_arguments(const std::filesystem::path& first,
                                            std::span<const std::filesystem::path> others);

// Returns whether the first byte of a file is that of an ONNX model.
[[nodiscard]] bool is_graph(const std::filesystem::path& path);

// Returns the error in the names of several graphs as text, or "" if there is none.
[[nodiscard]] std::string wrong_graph_names(std::span<const GraphToSave> graphs);

// Returns the path of a graph. Requires: the graph is a file.
[[nodiscard]] const std::filesystem::path& path_of(const GraphToSave& graph);

}  // namespace onnx_external
