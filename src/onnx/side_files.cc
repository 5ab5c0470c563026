#include "onnx/side_files.h"

#include <cstddef>
#include <cstdint>
#include <set>

#include "onnx_external/model.h"

namespace onnx_external {
namespace {

// Nodes with main_context 0 use what a main node loads, and name no file of their own.
void add_context_file(const onnx::NodeProto& node, std::set<std::string>& files) {
  std::int64_t embed_mode = 1;
  std::int64_t main_context = 1;
  std::string file;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "embed_mode") {
      embed_mode = attribute.i();
    } else if (attribute.name() == "main_context") {
      main_context = attribute.i();
    } else if (attribute.name() == "ep_cache_context") {
      file = attribute.s();
    }
  }
  if (embed_mode == 0 && main_context != 0 && !file.empty()) {
    files.insert(file);
  }
}

// Recursion is safe here: its depth is bounded by kMaxGraphDepth.
template <typename Nodes>
void add_files(const Nodes& nodes, std::size_t depth, std::set<std::string>& files) {
  for (const onnx::NodeProto& node : nodes) {
    if (node.op_type() == "EPContext") {
      add_context_file(node, files);
    }
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (depth < kMaxGraphDepth && attribute.has_g()) {
        add_files(attribute.g().node(), depth + 1, files);
      }
      for (const onnx::GraphProto& graph : attribute.graphs()) {
        if (depth < kMaxGraphDepth) {
          add_files(graph.node(), depth + 1, files);
        }
      }
    }
  }
}

}  // namespace

std::vector<std::string> list_side_files(const onnx::ModelProto& model) {
  std::set<std::string> files;
  add_files(model.graph().node(), 0, files);
  for (const onnx::FunctionProto& function : model.functions()) {
    add_files(function.node(), 0, files);
  }
  return {files.begin(), files.end()};
}

}  // namespace onnx_external
