#include "inspect/module_tree.h"

#include <map>
#include <utility>

namespace onnx_external {
namespace {

constexpr std::string_view kSeparators = "./";

// Returns where the part of a name that begins at `from` ends. Separators at its start belong to
// it, so that no part is empty.
std::size_t part_end(std::string_view name, std::size_t from) {
  const std::size_t start = name.find_first_not_of(kSeparators, from);
  const std::size_t end =
      start == std::string_view::npos ? start : name.find_first_of(kSeparators, start);
  return end == std::string_view::npos || end + 1 == name.size() ? name.size() : end;
}

class TreeMaker {
 public:
  explicit TreeMaker(std::span<const InspectedTensor> tensors) : tensors_(tensors) {}

  std::vector<ModuleNode> make() {
    nodes_.emplace_back();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      add(i);
    }
    merge_chains();
    return std::move(nodes_);
  }

 private:
  void add(std::size_t tensor) {
    const std::string_view name = tensors_[tensor].name;
    std::size_t node = 0;
    count(node, tensor);
    std::size_t from = 0;
    for (std::size_t depth = 0; depth < kMaxModuleDepth; ++depth) {
      const std::size_t end = part_end(name, from);
      if (end == name.size()) {
        break;
      }
      node = module_of(node, name.substr(from, end - from), name.substr(0, end), tensor);
      count(node, tensor);
      from = end + 1;
    }
    const std::size_t leaf = add_node(node, name.substr(from), tensor);
    count(leaf, tensor);
  }

  // Identifies a module by the beginning of its names. Two spellings of one path are two modules.
  std::size_t module_of(std::size_t parent, std::string_view label, std::string_view path,
                        std::size_t tensor) {
    const auto [known, is_new] = modules_.try_emplace(path, nodes_.size());
    return is_new ? add_node(parent, label, tensor) : known->second;
  }

  std::size_t add_node(std::size_t parent, std::string_view label, std::size_t tensor) {
    nodes_.push_back({.label = label, .tensor = tensor});
    nodes_[parent].children.push_back(nodes_.size() - 1);
    return nodes_.size() - 1;
  }

  void count(std::size_t node, std::size_t tensor) {
    nodes_[node].bytes = add_bytes(nodes_[node].bytes, tensors_[tensor].nbytes);
    nodes_[node].tensor_count += 1;
  }

  // Children come after their parents, so that one pass from the end merges chains of any length.
  void merge_chains() {
    for (std::size_t i = nodes_.size(); i-- > 1;) {
      ModuleNode& node = nodes_[i];
      if (node.children.size() != 1 || nodes_[node.children.front()].is_tensor()) {
        continue;
      }
      ModuleNode& only = nodes_[node.children.front()];
      // Both point into the name of the same first tensor, one separator apart.
      const char* end = only.label.data() + only.label.size();
      node.label = {node.label.data(), static_cast<std::size_t>(end - node.label.data())};
      node.children = std::exchange(only.children, {});
    }
  }

  std::span<const InspectedTensor> tensors_;
  std::vector<ModuleNode> nodes_;
  std::map<std::string_view, std::size_t> modules_;  // by the path; no hash: a file chooses it
};

}  // namespace

std::vector<ModuleNode> make_module_tree(std::span<const InspectedTensor> tensors) {
  return TreeMaker(tensors).make();
}

}  // namespace onnx_external
