#include "onnx/weight_graph.h"

#include <algorithm>
#include <string>

#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/inline_data.h"
#include "onnx/model_access.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kIrWithDefaultValues = 4;

// Returns the tensor in a Constant node; nullptr if there is none.
const onnx::TensorProto* tensor_of(const onnx::NodeProto& node) {
  if (node.op_type() != "Constant" || !is_default_domain(node)) {
    return nullptr;
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == "value" && attribute.has_t()) {
      return &attribute.t();
    }
  }
  return nullptr;
}

std::optional<std::vector<std::int64_t>> read_integers(const onnx::TensorProto& tensor,
                                                       const CutTensors& cuts) {
  const std::int64_t count = tensor.dims_size() == 1 ? tensor.dims(0) : 1;
  if (tensor.data_type() != onnx::TensorProto::INT64 || tensor.dims_size() > 1 || count < 0 ||
      count > static_cast<std::int64_t>(kMaxIntegers) || !has_inline_data(tensor)) {
    return std::nullopt;
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  auto reader = InlineReader::open(tensor, cuts);
  if (!reader || !reader->read(std::as_writable_bytes(std::span(numbers)))) {
    return std::nullopt;
  }
  return numbers;
}

}  // namespace

Result<WeightGraph> WeightGraph::of(const Model& model) {
  WeightGraph found;
  found.cuts_ = &ModelAccess::cuts(model);
  found.may_replace_ = model.facts().ir_version >= kIrWithDefaultValues;
  TRY_ASSIGN(found.graphs_, list_graphs(model.proto().graph()));
  found.names_.resize(found.graphs_.size());
  std::size_t ends = 0;
  for (std::uint32_t g = 0; g < found.graphs_.size(); ++g) {
    found.define(g);
    for (const auto& node : found.graphs_[g].graph->node()) {
      ends += static_cast<std::size_t>(node.input_size()) +
              static_cast<std::size_t>(node.output_size());
    }
  }
  found.assign_slots(model.facts());
  found.ends_.reserve(ends);  // spans of it are kept
  for (std::uint32_t g = 0; g < found.graphs_.size(); ++g) {
    found.first_node_.push_back(found.nodes_.size());
    found.connect(g);
  }
  found.first_node_.push_back(found.nodes_.size());
  found.list_readers();
  return found;
}

ValueId WeightGraph::add(std::uint32_t graph, std::string_view name) {
  const auto next = static_cast<ValueId>(values_.size());
  const auto [place, is_new] = names_[graph].emplace(name, next);
  if (is_new) {
    values_.push_back({name, graph});
  }
  return place->second;
}

void WeightGraph::define(std::uint32_t graph) {
  const onnx::GraphProto& proto = *graphs_[graph].graph;
  for (const auto& tensor : proto.initializer()) {
    values_[add(graph, tensor.name())].tensor = &tensor;
  }
  for (const auto& input : proto.input()) {
    values_[add(graph, input.name())].is_input = true;
  }
  for (const auto& sparse : proto.sparse_initializer()) {
    (void)add(graph, sparse.values().name());
  }
  for (const auto& node : proto.node()) {
    for (const std::string& output : node.output()) {
      (void)add(graph, output);
    }
  }
}

void WeightGraph::assign_slots(const GraphFacts& facts) {
  for (std::uint32_t i = 0; i < facts.slots.size(); ++i) {
    const ValueId value = add(facts.slots[i].graph, facts.slots[i].name);
    values_[value].slot = i;
    slot_values_.push_back(value);
  }
}

ValueId WeightGraph::named(std::uint32_t graph, std::string_view name) const {
  if (name.empty()) {
    return kNoValue;
  }
  for (;; graph = graphs_[graph].parent) {
    if (const auto found = names_[graph].find(name); found != names_[graph].end()) {
      return found->second;
    }
    if (graph == 0) {
      return kNoValue;
    }
  }
}

ValueId WeightGraph::resolve(std::uint32_t graph, std::string_view name) {
  const ValueId found = named(graph, name);
  return found == kNoValue && !name.empty() ? add(0, name) : found;
}

void WeightGraph::connect(std::uint32_t graph) {
  const onnx::GraphProto& proto = *graphs_[graph].graph;
  for (const auto& node : proto.node()) {
    const auto number = static_cast<std::uint32_t>(nodes_.size());
    const std::size_t begin = ends_.size();
    for (const std::string& input : node.input()) {
      ends_.push_back(resolve(graph, input));
    }
    const std::size_t middle = ends_.size();
    for (const std::string& output : node.output()) {
      const ValueId value = output.empty() ? kNoValue : names_[graph].find(output)->second;
      ends_.push_back(value);
      // A name that something else defines keeps its first definition.
      WeightValue* const made = value == kNoValue ? nullptr : &values_[value];
      if (made != nullptr && made->producer == kNoProducer && made->tensor == nullptr &&
          !made->is_input) {
        made->producer = number;
        made->tensor = tensor_of(node);
      }
    }
    const std::span<const ValueId> all(ends_);
    nodes_.push_back({&node, graph, all.subspan(begin, middle - begin), all.subspan(middle)});
  }
  for (const auto& output : proto.output()) {
    if (const ValueId value = resolve(graph, output.name()); value != kNoValue) {
      values_[value].output_of = &proto;
    }
  }
}

void WeightGraph::list_readers() {
  std::vector<std::uint32_t> counts(values_.size() + 1);
  for (const GraphNodeValues& node : nodes_) {
    for (const ValueId input : node.inputs) {
      counts[input == kNoValue ? values_.size() : input] += 1;
    }
  }
  first_reader_.resize(values_.size() + 1);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    first_reader_[i + 1] = first_reader_[i] + counts[i];
  }
  readers_.resize(first_reader_.back());
  std::vector<std::uint32_t> next(first_reader_.begin(), first_reader_.end() - 1);
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    for (std::uint32_t i = 0; i < nodes_[n].inputs.size(); ++i) {
      if (const ValueId input = nodes_[n].inputs[i]; input != kNoValue) {
        readers_[next[input]++] = {n, i};
      }
    }
  }
}

std::span<const GraphNodeValues> WeightGraph::nodes_of(std::uint32_t graph) const {
  return nodes().subspan(first_node_[graph], first_node_[graph + 1] - first_node_[graph]);
}

std::span<const ValueReader> WeightGraph::readers(ValueId value) const {
  return std::span(readers_).subspan(first_reader_[value],
                                     first_reader_[value + 1] - first_reader_[value]);
}

std::optional<std::vector<std::int64_t>> WeightGraph::integers(ValueId value) const {
  if (value == kNoValue || is_replaceable(value)) {
    return std::nullopt;
  }
  const WeightValue& found = values_[value];
  if (found.tensor != nullptr) {
    return read_integers(*found.tensor, *cuts_);
  }
  if (found.producer == kNoProducer || nodes_[found.producer].node->op_type() != "Constant") {
    return std::nullopt;
  }
  for (const auto& attribute : nodes_[found.producer].node->attribute()) {
    if (attribute.name() == "value_int") {
      return std::vector<std::int64_t>{attribute.i()};
    }
    if (attribute.name() == "value_ints" &&
        static_cast<std::size_t>(attribute.ints_size()) <= kMaxIntegers) {
      return std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end());
    }
  }
  return std::nullopt;
}

bool WeightGraph::is_scalar(ValueId value) const {
  const WeightValue& found = values_[value];
  if (found.tensor != nullptr) {
    return found.tensor->dims_size() == 0;
  }
  const auto& attributes = nodes_[found.producer].node->attribute();
  return std::any_of(attributes.begin(), attributes.end(),
                     [](const auto& attribute) { return attribute.name() == "value_int"; });
}

}  // namespace onnx_external
