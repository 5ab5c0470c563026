#include "onnx/tensor_list.h"

#include <cstddef>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// ".3"; "." + std::to_string(3) makes g++ 12 warn where it optimizes (-Wrestrict).
std::string numbered(int i) {
  return std::string(".").append(std::to_string(i));
}

class TensorLister {
 public:
  Result<std::vector<ListedTensor>> list(const onnx::ModelProto& model) {
    found_.reserve(static_cast<std::size_t>(model.graph().initializer_size()));
    has_functions_ = model.functions_size() > 0;
    visit_graph(model.graph());
    for (int i = 0; i < model.functions_size(); ++i) {
      TRY(visit_function(model, i));
    }
    in_training_ = true;
    for (const auto& training : model.training_info()) {
      visit_graph(training.initialization());
      visit_graph(training.algorithm());
    }
    if (too_deep_) {
      return fail(ErrorCode::kUnsupported,
                  "subgraphs are nested more than " + std::to_string(kMaxGraphDepth) + " deep");
    }
    return std::move(found_);
  }

 private:
  // Recursion is safe here: its depth is bounded by kMaxGraphDepth.
  void visit_graph(const onnx::GraphProto& graph) {
    if (depth_ > kMaxGraphDepth) {
      too_deep_ = true;
      return;
    }
    ++depth_;
    const std::uint32_t number = graphs_++;
    for (const auto& tensor : graph.initializer()) {
      add(tensor, {nullptr, TensorPlace::kInitializer, number, tensor.name(), tensor.name()});
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      const std::string& name = sparse.values().name();
      visit_sparse(sparse, {nullptr, TensorPlace::kSparse, number, name, name});
    }
    visit_nodes(graph.node(), number);
    --depth_;
  }

  Status visit_function(const onnx::ModelProto& model, int number) {
    const onnx::FunctionProto& function = model.functions(number);
    TRY_ASSIGN(const auto attributes, function_attributes(model, number));
    for (const FunctionAttribute& attribute : attributes) {
      detached_ = attribute.detached;
      visit_attribute(*attribute.proto, function.domain() + "::" + function.name(), 0);
    }
    detached_.reset();
    visit_nodes(function.node(), 0);
    return {};
  }

  template <typename Nodes>
  void visit_nodes(const Nodes& nodes, std::uint32_t graph) {
    for (const auto& node : nodes) {
      const std::string& name = node.output_size() > 0 ? node.output(0) : node.name();
      for (const auto& attribute : node.attribute()) {
        visit_attribute(attribute, name, graph);
      }
    }
  }

  void visit_attribute(const onnx::AttributeProto& attribute, const std::string& node,
                       std::uint32_t graph) {
    const ListedTensor here{nullptr, TensorPlace::kAttribute, graph, {}, node};
    const auto named = [&](const std::string& suffix) {
      ListedTensor tensor = here;
      tensor.name = node + "." + attribute.name() + suffix;
      return tensor;
    };
    if (attribute.has_t()) {
      add(attribute.t(), named(""));
    }
    for (int i = 0; i < attribute.tensors_size(); ++i) {
      add(attribute.tensors(i), named(numbered(i)));
    }
    if (attribute.has_sparse_tensor()) {
      visit_sparse(attribute.sparse_tensor(), named(""));
    }
    for (int i = 0; i < attribute.sparse_tensors_size(); ++i) {
      visit_sparse(attribute.sparse_tensors(i), named(numbered(i)));
    }
    if (attribute.has_g()) {
      visit_graph(attribute.g());
    }
    for (const auto& subgraph : attribute.graphs()) {
      visit_graph(subgraph);
    }
  }

  void visit_sparse(const onnx::SparseTensorProto& sparse, ListedTensor tensor) {
    add(sparse.values(), tensor);
    tensor.name += ".indices";
    add(sparse.indices(), std::move(tensor));
  }

  void add(const onnx::TensorProto& proto, ListedTensor tensor) {
    tensor.proto = &proto;
    tensor.detached = detached_;
    tensor.in_training = in_training_;
    if (has_functions_ && tensor.graph == 0 && tensor.place == TensorPlace::kAttribute) {
      tell_apart(tensor.name);
    }
    found_.push_back(std::move(tensor));
  }

  // Bodies of functions see no outer names, so several of them may use the same names.
  void tell_apart(std::string& name) {
    const std::size_t duplicates = seen_[name]++;
    if (duplicates > 0) {
      name.append("#").append(std::to_string(duplicates + 1));
    }
  }

  std::vector<ListedTensor> found_;
  OwnedNameMap<std::size_t> seen_;
  bool has_functions_ = false;
  bool in_training_ = false;
  std::shared_ptr<DetachedAttribute> detached_;  // the one that is being visited, if any
  std::uint32_t graphs_ = 0;
  std::size_t depth_ = 0;
  bool too_deep_ = false;
};

}  // namespace

Result<std::vector<ListedTensor>> list_tensors(const onnx::ModelProto& model) {
  return TensorLister().list(model);
}

}  // namespace onnx_external
