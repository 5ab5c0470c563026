#include "onnx/open_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "onnx/external_data.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr const char* kUndefined = "nodes read it, and nothing defines it";

const char* why_without_data(TensorPlace place) {
  switch (place) {
    case TensorPlace::kInitializer:
      return "an initializer without data";
    case TensorPlace::kSparse:
      return "a sparse initializer without data";
    case TensorPlace::kAttribute:
      break;
  }
  return "an attribute of a node, without data";
}

// The names that a function uses. Its body sees no names of the graph.
class FunctionNames {
 public:
  FunctionNames(const onnx::FunctionProto& function, std::vector<OpenValue>& found)
      : function_(function), found_(found) {}

  void check() {
    NameSet inputs(function_.input().begin(), function_.input().end());
    visit(function_.node(), std::move(inputs));
    for (const std::string& output : function_.output()) {
      if (!body_.contains(output)) {
        report(output, "an output of the function, but nothing defines it");
      }
    }
  }

 private:
  // Protobuf limits the depth of this recursion when it parses a model, and the list of tensors,
  // which was made before, is refused past kMaxGraphDepth.
  template <typename Nodes>
  void visit(const Nodes& nodes, NameSet names) {
    for (const onnx::NodeProto& node : nodes) {
      names.insert(node.output().begin(), node.output().end());
    }
    scopes_.push_back(&names);
    for (const onnx::NodeProto& node : nodes) {
      for (const std::string& input : node.input()) {
        read(input);
      }
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        visit_graphs(attribute);
      }
    }
    scopes_.pop_back();
    if (scopes_.empty()) {
      body_ = std::move(names);
    }
  }

  void visit_graphs(const onnx::AttributeProto& attribute) {
    if (attribute.has_g()) {
      visit(attribute.g().node(), names_before_nodes(attribute.g()));
    }
    for (const onnx::GraphProto& graph : attribute.graphs()) {
      visit(graph.node(), names_before_nodes(graph));
    }
  }

  void read(const std::string& name) {
    const bool is_known =
        name.empty() || std::any_of(scopes_.rbegin(), scopes_.rend(),
                                    [&](const NameSet* scope) { return scope->contains(name); });
    if (!is_known) {
      report(name, kUndefined);
    }
  }

  void report(const std::string& name, const char* why) {
    if (reported_.insert(name).second) {
      found_.push_back({function_.domain() + "::" + function_.name() + "." + name, "", why});
    }
  }

  const onnx::FunctionProto& function_;
  std::vector<OpenValue>& found_;
  std::vector<const NameSet*> scopes_;  // from the body inwards
  NameSet body_;
  NameSet reported_;
};

}  // namespace

NameSet names_before_nodes(const onnx::GraphProto& graph) {
  NameSet names;
  for (const auto& input : graph.input()) {
    names.insert(input.name());
  }
  for (const auto& tensor : graph.initializer()) {
    names.insert(tensor.name());
  }
  for (const auto& sparse : graph.sparse_initializer()) {
    names.insert(sparse.values().name());
  }
  return names;
}

bool is_open(const Slot& slot) {
  return slot.kind == SlotKind::kUndefinedName ||
         (slot.kind == SlotKind::kInitializer && !slot.has_data);
}

const char* why_open(const Slot& slot) {
  if (slot.kind == SlotKind::kInitializer) {
    return why_without_data(TensorPlace::kInitializer);
  }
  return slot.consumer_op.empty() ? "an output of the graph, but nothing defines it" : kUndefined;
}

std::vector<OpenValue> open_values(const onnx::ModelProto& model,
                                   std::span<const ListedTensor> tensors, std::size_t graphs) {
  std::vector<OpenValue> found;
  for (const ListedTensor& tensor : tensors) {
    const bool is_slot = tensor.is_initializer() && tensor.graph < graphs;
    // A node may have an attribute that is an empty message.
    const bool is_nothing = tensor.proto->data_type() == 0;
    if (!is_slot && !is_nothing && !has_data(*tensor.proto)) {
      found.push_back({tensor.name,
                       std::string(onnx_type_name(tensor.proto->data_type())) + " " +
                           shape_text(dims_of(*tensor.proto)),
                       why_without_data(tensor.place)});
    }
  }
  for (const onnx::FunctionProto& function : model.functions()) {
    FunctionNames(function, found).check();
  }
  return found;
}

}  // namespace onnx_external
