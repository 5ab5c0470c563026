#include "onnx/node_facts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/name_map.h"
#include "onnx/exporter_marks.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

void add_constants(const onnx::NodeProto& node, std::vector<ConstantTensor>& constants) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.floats_size() > 1) {  // value_floats
      constants.push_back({node.output(0), onnx::TensorProto::FLOAT, {attribute.floats_size()}});
    }
    if (!attribute.has_t() || !onnx_is_floating(attribute.t().data_type())) {
      continue;
    }
    Shape shape(attribute.t().dims().begin(), attribute.t().dims().end());
    const auto elements = element_count(shape);
    if (elements && *elements > 1) {
      constants.push_back({node.output(0), attribute.t().data_type(), std::move(shape)});
    }
  }
}

}  // namespace

std::vector<ConstantTensor> list_constants(std::span<const GraphNode> graphs) {
  std::vector<ConstantTensor> constants;
  for (const GraphNode& graph : graphs) {
    for (const auto& node : graph.graph->node()) {
      if (node.op_type() == "Constant" && node.output_size() == 1 && is_default_domain(node)) {
        add_constants(node, constants);
      }
    }
  }
  return constants;
}

std::vector<std::string> list_modules(std::span<const GraphNode> graphs) {
  OwnedNameSet found;
  for (const GraphNode& graph : graphs) {
    for (const auto& node : graph.graph->node()) {
      if (std::string module = module_of(node); !module.empty()) {
        found.insert(std::move(module));
      }
    }
  }
  std::vector<std::string> modules(found.begin(), found.end());
  std::sort(modules.begin(), modules.end());
  return modules;
}

}  // namespace onnx_external
