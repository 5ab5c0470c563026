#include "inspect/module_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"
#include "cut/value_graph.h"
#include "inspect/inspect.h"
#include "inspect/module_tree.h"
#include "mapping/slot_roles.h"
#include "onnx/exporter_marks.h"
#include "onnx/tensor_list.h"

namespace onnx_external {
namespace {

// Sorts "layers.2" before "layers.10", and both before "layers.10.fc".
struct ByNumber {
  bool operator()(std::string_view a, std::string_view b) const { return compare(a, b) < 0; }

 private:
  static int compare(std::string_view a, std::string_view b) {
    while (!a.empty() && !b.empty()) {
      const std::string_view first = take_part(a);
      const std::string_view second = take_part(b);
      const bool as_numbers = is_number(first) && is_number(second);
      const int difference = as_numbers && first.size() != second.size()
                                 ? (first.size() < second.size() ? -1 : 1)
                                 : first.compare(second);
      if (difference != 0) {
        return difference;
      }
    }
    return static_cast<int>(!a.empty()) - static_cast<int>(!b.empty());
  }

  static std::string_view take_part(std::string_view& name) {
    const std::string_view part = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    return part;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
};

class ModuleCounter {
 public:
  explicit ModuleCounter(const ValueGraph& graph) : graph_(graph) {}

  ModuleList count() {
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      for (std::string& scope : module_scopes(proto(node))) {
        called_.insert(std::move(scope));
      }
    }
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      add(node);
    }
    for (auto& [name, module] : modules_) {
      list_.modules.push_back(summed(name, module));
    }
    list_.all = summed("", all_);
    return std::move(list_);
  }

 private:
  struct Module {
    std::uint64_t nodes = 0;
    std::vector<ValueId> weights;  // with repetitions
  };

  [[nodiscard]] const onnx::NodeProto& proto(NodeId node) const {
    return graph_.graph().node(static_cast<int>(node));
  }

  void add(NodeId node) {
    const std::set<std::string> modules = modules_of(node);
    list_.unassigned += modules.empty() ? 1 : 0;
    add_to(all_, node);
    for (const std::string& module : modules) {
      add_to(modules_[module], node);
    }
  }

  // Returns the modules for which the node was made, and the containers of these modules.
  [[nodiscard]] std::set<std::string> modules_of(NodeId node) const {
    std::set<std::string> modules;
    for (const std::string& scope : module_scopes(proto(node))) {
      std::size_t depth = 0;
      for (std::size_t dot = scope.find('.'); dot != std::string::npos && depth++ < kMaxModuleDepth;
           dot = scope.find('.', dot + 1)) {
        if (std::string container = scope.substr(0, dot); !called_.contains(container)) {
          modules.insert(std::move(container));
        }
      }
      modules.insert(scope);
    }
    return modules;
  }

  void add_to(Module& module, NodeId node) const {
    ++module.nodes;
    for (const ValueId read : graph_.reads(node)) {
      if (read != kNoValue && graph_[read].source == ValueSource::kInitializer) {
        module.weights.push_back(read);
      }
    }
  }

  [[nodiscard]] ModuleFacts summed(const std::string& name, Module& module) const {
    ModuleFacts facts{.name = name, .nodes = module.nodes};
    std::sort(module.weights.begin(), module.weights.end());
    module.weights.erase(std::unique(module.weights.begin(), module.weights.end()),
                         module.weights.end());
    for (const ValueId weight : module.weights) {
      const onnx::TensorProto& tensor =
          graph_.graph().initializer(static_cast<int>(graph_[weight].index));
      const Shape dims = dims_of(tensor);
      if (!is_computed(tensor)) {
        facts.parameters = add_bytes(facts.parameters, element_count(dims).value_or(0));
      }
      facts.bytes = add_bytes(facts.bytes, onnx_nbytes(tensor.data_type(), dims).value_or(0));
    }
    return facts;
  }

  const ValueGraph& graph_;
  OwnedNameSet called_;
  std::map<std::string, Module, ByNumber> modules_;
  Module all_;
  ModuleList list_;
};

}  // namespace

Result<ModuleList> count_modules(const Model& model) {
  TRY_ASSIGN(const auto graph, ValueGraph::of(model.proto().graph()));
  return ModuleCounter(graph).count();
}

}  // namespace onnx_external
