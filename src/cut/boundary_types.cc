#include "cut/boundary_types.h"

#include <string>

#include "onnx/inferred_types.h"
#include "onnx/tensor_list.h"

namespace onnx_external {
namespace {

bool has_type(const onnx::ValueInfoProto& info) {
  return info.type().value_case() != onnx::TypeProto::VALUE_NOT_SET &&
         (!info.type().has_tensor_type() || info.type().tensor_type().elem_type() != 0);
}

void set_type(const onnx::TensorProto& tensor, onnx::TypeProto& type) {
  type.mutable_tensor_type()->set_elem_type(tensor.data_type());
  onnx::TensorShapeProto* const shape = type.mutable_tensor_type()->mutable_shape();
  for (const std::int64_t dim : tensor.dims()) {
    shape->add_dim()->set_dim_value(dim);
  }
}

}  // namespace

BoundaryTypes::BoundaryTypes(const ValueGraph& graph) : graph_(graph) {
  const onnx::GraphProto& proto = graph.graph();
  for (const auto* infos : {&proto.input(), &proto.output(), &proto.value_info()}) {
    for (const onnx::ValueInfoProto& info : *infos) {
      if (has_type(info)) {
        stated_.try_emplace(info.name(), &info);
      }
    }
  }
}

onnx::ValueInfoProto BoundaryTypes::of(ValueId value) {
  const GraphValue& known = graph_[value];
  if (const auto found = stated_.find(known.name); found != stated_.end()) {
    return *found->second;
  }
  onnx::ValueInfoProto info;
  info.set_name(std::string(known.name));
  if (known.source == ValueSource::kInitializer) {
    set_type(graph_.graph().initializer(static_cast<int>(known.index)), *info.mutable_type());
    return info;
  }
  if (inferred_.empty()) {
    infer();
  }
  if (inferred_[value] != 0) {
    info.mutable_type()->mutable_tensor_type()->set_elem_type(inferred_[value]);
  }
  return info;
}

void BoundaryTypes::infer() {
  std::vector<ValueType> types(graph_.values().size());
  for (ValueId value = 0; value < types.size(); ++value) {
    const GraphValue& known = graph_[value];
    const auto stated = stated_.find(known.name);
    if (known.source == ValueSource::kInitializer) {
      types[value].elem_type =
          graph_.graph().initializer(static_cast<int>(known.index)).data_type();
    } else if (stated != stated_.end() && stated->second->type().has_tensor_type()) {
      types[value].elem_type = stated->second->type().tensor_type().elem_type();
      types[value].shape = stated_shape(stated->second->type().tensor_type());
    }
  }
  std::vector<NodeValues> nodes;
  nodes.reserve(graph_.node_count());
  for (NodeId node = 0; node < graph_.node_count(); ++node) {
    nodes.push_back(
        {&graph_.graph().node(static_cast<int>(node)), graph_.inputs(node), graph_.outputs(node)});
  }
  infer_types(nodes, types);
  inferred_.reserve(types.size());
  for (const ValueType& type : types) {
    inferred_.push_back(type.elem_type);
  }
}

}  // namespace onnx_external
