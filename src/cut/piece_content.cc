#include "cut/piece_content.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "cut/captures.h"
#include "onnx/model_access.h"

namespace onnx_external {
namespace {

using VisitTensor = std::function<void(const onnx::TensorProto&)>;

// "DOMAIN\nNAME"; ONNX's own domain has two names.
std::string function_key(std::string_view domain, std::string_view name) {
  std::string key(domain == "ai.onnx" ? std::string_view() : domain);
  return key.append("\n").append(name);
}

// Finds the functions that nodes call, directly or through other functions.
class FunctionFinder {
 public:
  explicit FunctionFinder(const onnx::ModelProto& model) : model_(model) {
    needed_.resize(static_cast<std::size_t>(model.functions_size()));
    for (int i = 0; i < model.functions_size(); ++i) {
      by_key_[function_key(model.functions(i).domain(), model.functions(i).name())].push_back(i);
    }
  }

  void call(const onnx::NodeProto& node) {
    if (by_key_.empty()) {
      return;
    }
    note(node);
    for_each_subgraph(node, [this](const onnx::GraphProto& graph) {
      for (const onnx::NodeProto& inner : graph.node()) {
        note(inner);
      }
    });
  }

  std::vector<bool> finish() {
    while (!open_.empty()) {
      const int function = open_.back();
      open_.pop_back();
      for (const onnx::NodeProto& node : model_.functions(function).node()) {
        call(node);
      }
    }
    return std::move(needed_);
  }

 private:
  void note(const onnx::NodeProto& node) {
    const auto found = by_key_.find(function_key(node.domain(), node.op_type()));
    if (found == by_key_.end()) {
      return;
    }
    for (const int function : found->second) {
      if (!needed_[static_cast<std::size_t>(function)]) {
        needed_[static_cast<std::size_t>(function)] = true;
        open_.push_back(function);
      }
    }
  }

  const onnx::ModelProto& model_;
  OwnedNameMap<std::vector<int>> by_key_;
  std::vector<bool> needed_;
  std::vector<int> open_;  // needed ones whose nodes were not looked at
};

class ContentFinder {
 public:
  ContentFinder(const Model& model, const ValueGraph& graph, const CutSelection& selection)
      : model_(model), graph_(graph), selection_(selection) {
    content_.carried.resize(graph.values().size());
    content_.is_input.resize(graph.values().size());
    for (const ValueId input : selection.inputs) {
      content_.is_input[input] = true;
    }
  }

  PieceContent find() {
    FunctionFinder functions(model_.proto());
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      if (selection_.nodes[node]) {
        functions.call(graph_.graph().node(static_cast<int>(node)));
        for (const ValueId read : graph_.reads(node)) {
          carry(read);
        }
      }
    }
    content_.functions = functions.finish();
    carry_quantization();
    for (const onnx::ValueInfoProto& input : graph_.graph().input()) {
      const ValueId value = *graph_.find(input.name());
      if (content_.carried[value]) {
        content_.defaulted.push_back(value);
      }
    }
    return std::move(content_);
  }

 private:
  void carry(ValueId value) {
    if (value != kNoValue && !content_.is_input[value] &&
        (graph_[value].source == ValueSource::kInitializer ||
         graph_[value].source == ValueSource::kSparse)) {
      content_.carried[value] = true;
    }
  }

  // Adds the scales and zero points that quantization annotations of values refer to.
  void carry_quantization() {
    for (const onnx::TensorAnnotation& annotation : graph_.graph().quantization_annotation()) {
      const auto value = graph_.find(annotation.tensor_name());
      if (!value || !content_.has(graph_, selection_, *value)) {
        continue;
      }
      for (const auto& parameter : annotation.quant_parameter_tensor_names()) {
        carry(graph_.find(parameter.value()).value_or(kNoValue));
      }
    }
  }

  const Model& model_;
  const ValueGraph& graph_;
  const CutSelection& selection_;
  PieceContent content_;
};

// Recursion is safe here: its depth is bounded by kMaxGraphDepth.
void visit_tensors(const onnx::NodeProto& node, const VisitTensor& visit);

void visit_tensors(const onnx::SparseTensorProto& sparse, const VisitTensor& visit) {
  visit(sparse.values());
  visit(sparse.indices());
}

void visit_tensors(const onnx::GraphProto& graph, const VisitTensor& visit) {
  std::for_each(graph.initializer().begin(), graph.initializer().end(), visit);
  for (const onnx::SparseTensorProto& sparse : graph.sparse_initializer()) {
    visit_tensors(sparse, visit);
  }
  for (const onnx::NodeProto& node : graph.node()) {
    visit_tensors(node, visit);
  }
}

void visit_tensors(const onnx::AttributeProto& attribute, const VisitTensor& visit) {
  if (attribute.has_t()) {
    visit(attribute.t());
  }
  std::for_each(attribute.tensors().begin(), attribute.tensors().end(), visit);
  if (attribute.has_sparse_tensor()) {
    visit_tensors(attribute.sparse_tensor(), visit);
  }
  for (const onnx::SparseTensorProto& sparse : attribute.sparse_tensors()) {
    visit_tensors(sparse, visit);
  }
  if (attribute.has_g()) {
    visit_tensors(attribute.g(), visit);
  }
  for (const onnx::GraphProto& graph : attribute.graphs()) {
    visit_tensors(graph, visit);
  }
}

void visit_tensors(const onnx::NodeProto& node, const VisitTensor& visit) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    visit_tensors(attribute, visit);
  }
}

}  // namespace

bool PieceContent::has(const ValueGraph& graph, const CutSelection& selection,
                       ValueId value) const {
  const GraphValue& found = graph[value];
  return carried[value] || is_input[value] ||
         (found.source == ValueSource::kNode && selection.nodes[found.index]);
}

PieceContent find_content(const Model& model, const ValueGraph& graph,
                          const CutSelection& selection) {
  return ContentFinder(model, graph, selection).find();
}

void for_each_tensor(const Model& model, const ValueGraph& graph, const CutSelection& selection,
                     const PieceContent& content, const VisitTensor& visit) {
  const onnx::GraphProto& main = graph.graph();
  for (ValueId value = 0; value < content.carried.size(); ++value) {
    const auto index = static_cast<int>(graph[value].index);
    if (content.carried[value] && graph[value].source == ValueSource::kInitializer) {
      visit(main.initializer(index));
    } else if (content.carried[value]) {
      visit_tensors(main.sparse_initializer(index), visit);
    }
  }
  for (NodeId node = 0; node < graph.node_count(); ++node) {
    if (selection.nodes[node]) {
      visit_tensors(main.node(static_cast<int>(node)), visit);
    }
  }
  for (int i = 0; i < model.proto().functions_size(); ++i) {
    if (content.functions[static_cast<std::size_t>(i)]) {
      for (const onnx::NodeProto& node : model.proto().functions(i).node()) {
        visit_tensors(node, visit);
      }
    }
  }
  for (const auto& detached : ModelAccess::detached_attributes(model)) {
    if (content.functions[static_cast<std::size_t>(detached->function)]) {
      visit_tensors(detached->proto, visit);
    }
  }
}

}  // namespace onnx_external
