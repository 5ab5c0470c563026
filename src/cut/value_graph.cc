#include "cut/value_graph.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/nearest_names.h"
#include "base/text.h"
#include "base/try.h"
#include "cut/captures.h"

namespace onnx_external {

bool has_subgraphs(const onnx::NodeProto& node) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() > 0) {
      return true;
    }
  }
  return false;
}

Result<ValueGraph> ValueGraph::of(const onnx::GraphProto& graph) {
  ValueGraph made(graph);
  TRY(made.define_values());
  TRY(made.link_nodes());
  made.note_outputs();
  return made;
}

Status ValueGraph::define_values() {
  const onnx::GraphProto& graph = *graph_;
  const auto count = static_cast<std::size_t>(graph.initializer_size()) +
                     static_cast<std::size_t>(graph.input_size()) +
                     static_cast<std::size_t>(graph.node_size());
  values_.reserve(count);
  by_name_ = table_for<NameMap<ValueId>>(count);
  for (int i = 0; i < graph.initializer_size(); ++i) {
    TRY(define(graph.initializer(i).name(), ValueSource::kInitializer,
               static_cast<std::uint32_t>(i)));
  }
  for (int i = 0; i < graph.sparse_initializer_size(); ++i) {
    TRY(define(graph.sparse_initializer(i).values().name(), ValueSource::kSparse,
               static_cast<std::uint32_t>(i)));
  }
  NameSet inputs;
  for (int i = 0; i < graph.input_size(); ++i) {
    const std::string& name = graph.input(i).name();
    const auto known = find(name);
    if (!inputs.insert(name).second) {
      return fail(ErrorCode::kCorrupt, "two graph inputs are named " + quote(name));
    }
    if (!known) {  // otherwise the initializer is its default value
      TRY(define(name, ValueSource::kInput, static_cast<std::uint32_t>(i)));
    }
  }
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& output : graph.node(i).output()) {
      TRY(output.empty() ? Status()
                         : define(output, ValueSource::kNode, static_cast<std::uint32_t>(i)));
    }
  }
  return {};
}

Status ValueGraph::define(std::string_view name, ValueSource source, std::uint32_t index) {
  const auto next = static_cast<ValueId>(values_.size());
  const auto [found, is_new] = by_name_.try_emplace(name, next);
  values_.push_back({name, source, index});
  if (is_new) {
    return {};
  }
  return fail(ErrorCode::kCorrupt, "the value " + quote(name) + " is defined twice: by " +
                                       definer_text(values_[found->second]) + " and by " +
                                       definer_text(values_.back()));
}

std::string ValueGraph::definer_text(const GraphValue& value) const {
  switch (value.source) {
    case ValueSource::kInitializer:
      return "an initializer";
    case ValueSource::kSparse:
      return "a sparse initializer";
    case ValueSource::kInput:
      return "a graph input";
    case ValueSource::kNode:
      return node_text(value.index);
    case ValueSource::kUndefined:
      break;
  }
  return "nothing";
}

// A name that nothing defines also becomes a value; code that needs it reports the error.
ValueId ValueGraph::used(std::string_view name) {
  if (name.empty()) {
    return kNoValue;
  }
  const auto next = static_cast<ValueId>(values_.size());
  const auto [found, is_new] = by_name_.try_emplace(name, next);
  if (is_new) {
    values_.push_back({name, ValueSource::kUndefined, 0});
  }
  return found->second;
}

Status ValueGraph::link_nodes() {
  places_.reserve(static_cast<std::size_t>(graph_->node_size()) + 1);
  for (const onnx::NodeProto& node : graph_->node()) {
    Place place{.inputs = links_.size()};
    for (const std::string& input : node.input()) {
      links_.push_back(used(input));
    }
    place.captures = links_.size();
    if (has_subgraphs(node)) {
      TRY_ASSIGN(const auto captures, captures_of(node));
      for (const std::string_view name : captures) {
        links_.push_back(used(name));
      }
    }
    place.outputs = links_.size();
    for (const std::string& output : node.output()) {
      links_.push_back(used(output));
    }
    places_.push_back(place);
  }
  places_.push_back({links_.size(), links_.size(), links_.size()});
  for (NodeId node = 0; node < node_count(); ++node) {
    TRY(check_order(node));
  }
  return {};
}

Status ValueGraph::check_order(NodeId node) const {
  for (const ValueId read : reads(node)) {
    if (read == kNoValue || values_[read].source != ValueSource::kNode ||
        values_[read].index < node) {
      continue;
    }
    return fail(ErrorCode::kCorrupt,
                node_text(node) + " reads " + quote(values_[read].name) +
                    (values_[read].index == node ? ", which is its own output"
                                                 : ", which " + node_text(values_[read].index) +
                                                       " computes only later: the nodes form a "
                                                       "cycle, or are not in topological order"));
  }
  return {};
}

void ValueGraph::note_outputs() {
  for (const onnx::ValueInfoProto& output : graph_->output()) {
    (void)used(output.name());
  }
  is_output_.resize(values_.size());
  for (const onnx::ValueInfoProto& output : graph_->output()) {
    if (const ValueId value = used(output.name()); value != kNoValue) {
      is_output_[value] = true;
    }
  }
}

std::optional<ValueId> ValueGraph::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::span<const ValueId> ValueGraph::inputs(NodeId node) const {
  const Place& place = places_[node];
  return std::span(links_).subspan(place.inputs, place.captures - place.inputs);
}

std::span<const ValueId> ValueGraph::reads(NodeId node) const {
  const Place& place = places_[node];
  return std::span(links_).subspan(place.inputs, place.outputs - place.inputs);
}

std::span<const ValueId> ValueGraph::outputs(NodeId node) const {
  const std::size_t begin = places_[node].outputs;
  return std::span(links_).subspan(begin, places_[node + 1].inputs - begin);
}

std::string ValueGraph::node_text(NodeId node) const {
  const onnx::NodeProto& proto = graph_->node(static_cast<int>(node));
  const std::string op = proto.op_type().empty() ? "node" : quote(proto.op_type());
  const std::string name = !proto.name().empty()     ? proto.name()
                           : proto.output_size() > 0 ? proto.output(0)
                                                     : "";
  return op + " " + quote(name);
}

Error not_found_error(std::string what, std::string_view name,
                      std::span<const std::string_view> known) {
  constexpr std::size_t kMostShown = 3;
  std::vector<std::string> nearest;
  for (const std::size_t i : NearestNames().of(name, known, kMostShown)) {
    nearest.emplace_back(known[i]);
  }
  if (!nearest.empty()) {
    what += "; did you mean " + quote_list(nearest, kMostShown) + "?";
  }
  return {ErrorCode::kNotFound, std::move(what)};
}

Error undefined_error(const ValueGraph& graph, NodeId node, ValueId value) {
  return {ErrorCode::kCorrupt, graph.node_text(node) + " reads " + quote(graph[value].name) +
                                   ", which nothing defines; if it is a weight, save the model "
                                   "with its weights first"};
}

}  // namespace onnx_external
