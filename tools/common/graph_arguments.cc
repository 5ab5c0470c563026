#include "common/graph_arguments.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/formats/checkpoint_file.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnd = ".onnx";

// "NAME.onnx=PATH", unless there is a file of the whole name.
std::optional<GraphToSave> with_name(const fs::path& argument) {
  const std::string text = argument.string();
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::error_code ignored;
  if (equals == std::string::npos || !name.ends_with(kModelEnd) ||
      name.find('/') != std::string::npos || fs::exists(argument, ignored)) {
    return std::nullopt;
  }
  return GraphToSave{name, fs::path(text.substr(equals + 1))};
}

std::optional<GraphToSave> as_graph(const fs::path& argument) {
  auto named = with_name(argument);
  if (!named && is_graph(argument)) {
    named = GraphToSave{argument.filename().string(), argument};
  }
  return named;
}

}  // namespace

// ONNX models state their IR version first, and no checkpoint begins like that.
bool is_graph(const fs::path& path) {
  constexpr std::byte kIrVersion{0x08};
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return false;
  }
  const auto file = SourceFile::open(path);
  const auto format = file ? sniff_format(**file) : fail(file.error());
  std::byte first{};
  return format && *format == FileFormat::kUnknown && (*file)->size() > 0 &&
         (*file)->read(0, {&first, 1}) && first == kIrVersion;
}

GraphArguments sort_arguments(const fs::path& first, std::span<const fs::path> others) {
  auto graph = as_graph(first);
  if (!graph) {
    return {{{first.filename().string(), first}}, {others.begin(), others.end()}};
  }
  GraphArguments sorted{{*std::move(graph)}, {}};
  for (const fs::path& argument : others) {
    if (auto another = as_graph(argument)) {
      sorted.graphs.push_back(*std::move(another));
    } else {
      sorted.checkpoints.push_back(argument);
    }
  }
  return sorted;
}

std::string wrong_graph_names(std::span<const GraphToSave> graphs) {
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (graphs[i].model_name != graphs[j].model_name) {
        continue;
      }
      if (path_of(graphs[i]) == path_of(graphs[j])) {
        return fmt::format("{} is passed twice; pass each graph once",
                           quote(path_of(graphs[i]).string()));
      }
      return fmt::format(
          "two graphs are named {}; give them different names: NAME.onnx={} OTHER.onnx={}",
          quote(graphs[i].model_name), path_of(graphs[j]).string(), path_of(graphs[i]).string());
    }
  }
  return "";
}

const fs::path& path_of(const GraphToSave& graph) {
  return std::get<fs::path>(graph.graph);
}

}  // namespace onnx_external
