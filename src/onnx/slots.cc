#include "onnx/slots.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "onnx/exporter_marks.h"
#include "onnx/external_data.h"
#include "onnx/graph_facts.h"
#include "onnx/inferred_types.h"
#include "onnx/node_facts.h"

namespace onnx_external {
namespace {

// A shape of a higher rank counts as not stated: no checkpoint has such tensors, and each Identity
// node would copy the shape of its input.
constexpr int kMaxSlotRank = 64;

constexpr std::size_t kMaxUsedIn = 4;  // modules that are listed for a slot

// "layer1.0" of "layer1.0.weight".
std::string_view module_of_name(std::string_view name) {
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

bool is_identity(const onnx::NodeProto& node) {
  return node.op_type() == "Identity" && is_default_domain(node) && node.input_size() == 1 &&
         node.output_size() == 1 && !node.input(0).empty() && !node.output(0).empty();
}

class Collector {
 public:
  explicit Collector(std::span<const GraphNode> graphs)
      : graphs_(graphs), infos_(graphs.size()), inline_names_(graphs.size()) {
    places_.reserve(graphs.size());
  }
  Collector(const Collector&) = delete;  // places_ refers to values_
  Collector& operator=(const Collector&) = delete;

  GraphFacts collect(std::int64_t ir_version) {
    facts_.ir_version = ir_version;
    for_each_graph(&Collector::define_values);
    for_each_graph(&Collector::define_initializers);
    for_each_graph(&Collector::resolve_inputs);
    infer_slots();
    for_each_graph(&Collector::find_identities);
    for_each_graph(&Collector::count_consumers);
    for_each_graph(&Collector::read_origins);
    facts_.modules = list_modules(graphs_);
    if (!facts_.modules.empty()) {
      for_each_graph(&Collector::note_modules);
    }
    list_names();
    facts_.constants = list_constants(graphs_);
    return std::move(facts_);
  }

  [[nodiscard]] bool has_duplicates() const { return has_duplicates_; }

 private:
  void for_each_graph(void (Collector::*step)(std::uint32_t)) {
    next_input_ = 0;
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      (this->*step)(g);
    }
  }

  // A name that a graph defines, and its slot, if any. Names point into the model.
  struct Value {
    std::string_view name;
    std::uint32_t slot = kNoSlot;
  };

  // Defines inputs, and outputs of nodes. The tensor inputs of the main graph are slots; those of a
  // subgraph get their values from the node that owns it.
  void define_values(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    const auto count = static_cast<std::size_t>(graph.input_size()) +
                       static_cast<std::size_t>(graph.initializer_size()) +
                       static_cast<std::size_t>(graph.node_size());
    places_.emplace_back([this](ValueId value) { return values_[value].name; }, count);
    if (g == 0) {
      values_.reserve(count);
      facts_.graph_inputs.reserve(static_cast<std::size_t>(graph.input_size()));
      facts_.slots.reserve(static_cast<std::size_t>(graph.input_size()) +
                           static_cast<std::size_t>(graph.initializer_size()));
    }
    const std::size_t first_value = values_.size();
    for (const auto& tensor : graph.initializer()) {
      // Comes first, so that an input of this name is not also a slot.
      note_duplicate(!define(g, tensor.name()) && !tensor.name().empty());
    }
    const std::size_t first_input = values_.size();
    for (int i = 0; i < graph.input_size(); ++i) {
      define_input(g, i);
    }
    const std::size_t first_sparse = values_.size();
    const auto is_initializer = [&](const std::string& name, std::size_t end) {
      const auto found = places_[g].find(name);
      const bool is_dense = found && *found >= first_value && *found < first_input;
      return !name.empty() && (is_dense || (found && *found >= first_sparse && *found < end));
    };
    for (const auto& sparse : graph.sparse_initializer()) {
      const std::string& name = sparse.values().name();
      note_duplicate(!define(g, name) && is_initializer(name, values_.size()));
    }
    const std::size_t first_output = values_.size();
    for (const auto& node : graph.node()) {
      for (const std::string& output : node.output()) {
        note_duplicate(!define(g, output) && is_initializer(output, first_output));
      }
    }
  }

  void note_duplicate(bool is_duplicate) { has_duplicates_ = has_duplicates_ || is_duplicate; }

  // True if the graph did not define the name before.
  bool define(std::uint32_t g, const std::string& name) {
    const auto next = static_cast<ValueId>(values_.size());
    values_.push_back({name});
    const bool fresh = places_[g].add(next) == next;
    if (!fresh) {
      values_.pop_back();
    }
    return fresh;
  }

  void define_input(std::uint32_t g, int index) {
    const auto& input = graphs_[g].graph->input(index);
    if (g == 0) {
      facts_.graph_inputs.push_back(input.name());
    }
    const bool fresh = define(g, input.name());
    if (g != 0 || !fresh || !input.type().has_tensor_type()) {
      return;
    }
    Slot& slot = add_slot(values_.back(), g, SlotKind::kGraphInput);
    slot.input_index = static_cast<std::uint32_t>(index);
    slot.elem_type = input.type().tensor_type().elem_type();
    slot.shape = stated_shape(input.type().tensor_type());
  }

  void define_initializers(std::uint32_t g) {
    for (const auto& tensor : graphs_[g].graph->initializer()) {
      Value& value = values_[*places_[g].find(tensor.name())];
      if (tensor.name().empty() || value.slot != kNoSlot) {
        continue;
      }
      Slot& slot = add_slot(value, g, SlotKind::kInitializer);
      slot.elem_type = tensor.data_type();
      if (tensor.dims_size() <= kMaxSlotRank) {
        slot.shape = SymbolicShape(tensor.dims().begin(), tensor.dims().end());
      }
      slot.has_data = has_data(tensor);
    }
  }

  // Finds what each node reads. A name that nothing defines becomes a slot of the main graph, where
  // every subgraph sees it.
  void resolve_inputs(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    if (g == 0) {  // reserving for each of many small graphs would be slow
      inputs_.reserve(2 * static_cast<std::size_t>(graph.node_size()));
    }
    for (const auto& node : graph.node()) {
      for (const std::string& input : node.input()) {
        inputs_.push_back(value_read(g, input));
      }
    }
    for (const auto& output : graph.output()) {
      (void)value_read(g, output.name());
    }
  }

  ValueId value_read(std::uint32_t g, const std::string& name) {
    if (name.empty()) {
      return kNoValue;
    }
    if (const auto found = resolve(g, name)) {
      return *found;
    }
    define(0, name);
    describe(g, name, add_slot(values_.back(), 0, SlotKind::kUndefinedName));
    return static_cast<ValueId>(values_.size() - 1);
  }

  // Fills in the type and shape that graph `g` or one around it states for `name`.
  void describe(std::uint32_t g, std::string_view name, Slot& slot) {
    if (const onnx::TypeProto* type = info(g, name); type != nullptr && type->has_tensor_type()) {
      slot.elem_type = type->tensor_type().elem_type();
      slot.shape = stated_shape(type->tensor_type());
    }
  }

  // A graph without initializers does not state the types and shapes of its weights; they are
  // inferred from the nodes that read them.
  void infer_slots() {
    const bool all_stated =
        std::none_of(facts_.slots.begin(), facts_.slots.end(), [](const Slot& slot) {
          return slot.kind == SlotKind::kUndefinedName && (slot.elem_type == 0 || !slot.shape);
        });
    if (all_stated) {
      return;
    }
    std::vector<ValueType> types = stated_types();
    const std::vector<ValueId> outputs = list_outputs();
    infer_types(list_nodes(outputs), types);
    for (std::size_t value = 0; value < values_.size(); ++value) {
      Slot* slot = slot_of(static_cast<ValueId>(value));
      if (slot != nullptr && slot->kind == SlotKind::kUndefinedName) {
        slot->elem_type = types[value].elem_type;
        slot->shape = std::move(types[value].shape);
        slot->broadcast_limit =
            slot->shape ? std::nullopt : std::move(types[value].broadcast_limit);
      }
    }
  }

  std::vector<ValueType> stated_types() {
    std::vector<ValueType> types(values_.size());
    for (std::size_t value = 0; value < values_.size(); ++value) {
      if (const Slot* slot = slot_of(static_cast<ValueId>(value))) {
        types[value].is_open = slot->kind == SlotKind::kUndefinedName;
        types[value].elem_type = slot->elem_type;
        types[value].shape = slot->shape;
      }
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      for (const auto& [name, type] : infos_of(g)) {
        const auto value = places_[g].find(name);
        if (value && slot_of(*value) == nullptr && type->has_tensor_type()) {
          types[*value].elem_type = type->tensor_type().elem_type();
          types[*value].shape = stated_shape(type->tensor_type());
        }
      }
    }
    return types;
  }

  // The outputs of all nodes, in order.
  std::vector<ValueId> list_outputs() const {
    std::vector<ValueId> outputs;
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      for (const auto& node : graphs_[g].graph->node()) {
        for (const std::string& output : node.output()) {
          outputs.push_back(output.empty() ? kNoValue : *places_[g].find(output));
        }
      }
    }
    return outputs;
  }

  std::vector<NodeValues> list_nodes(std::span<const ValueId> outputs) const {
    std::vector<NodeValues> nodes;
    std::span<const ValueId> inputs = inputs_;
    const auto take = [](std::span<const ValueId>& values, int count) {
      const auto taken = values.first(static_cast<std::size_t>(count));
      values = values.subspan(taken.size());
      return taken;
    };
    for (const GraphNode& graph : graphs_) {
      for (const auto& node : graph.graph->node()) {
        nodes.push_back(
            {&node, take(inputs, node.input_size()), take(outputs, node.output_size())});
      }
    }
    return nodes;
  }

  // Nodes are in topological order, so the input of an Identity has its slot already, even if it is
  // the output of another Identity.
  void find_identities(std::uint32_t g) {
    for (const auto& node : graphs_[g].graph->node()) {
      const std::size_t first = next_input_;
      next_input_ += static_cast<std::size_t>(node.input_size());
      if (!is_identity(node)) {
        continue;
      }
      const std::uint32_t source = values_[inputs_[first]].slot;
      Value& own = values_[*places_[g].find(node.output(0))];
      if (source == kNoSlot || own.slot != kNoSlot) {
        continue;
      }
      const std::int32_t elem_type = facts_.slots[source].elem_type;
      std::optional<SymbolicShape> shape = facts_.slots[source].shape;
      Slot& slot = add_slot(own, g, SlotKind::kIdentityOutput);
      slot.merged_into = node.input(0);
      describe(g, slot.name, slot);
      slot.elem_type = slot.elem_type != 0 ? slot.elem_type : elem_type;
      slot.shape = shape ? std::move(shape) : slot.shape;
    }
  }

  void count_consumers(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    for (const auto& node : graph.node()) {
      const bool scales =
          is_default_domain(node) && (node.op_type() == "Resize" || node.op_type() == "Upsample");
      for (int i = 0; i < node.input_size(); ++i) {
        if (Slot* slot = slot_of(inputs_[next_input_++])) {
          consume(*slot, node, i);
        }
        if (scales && i > 0) {
          mark_inline(g, node.input(i));
        }
      }
    }
    for (const auto& output : graph.output()) {
      if (Slot* slot = slot_called(g, output.name())) {
        ++slot->consumer_count;
        slot->graph_output = slot->graph_output || g == 0;
      }
    }
  }

  static void consume(Slot& slot, const onnx::NodeProto& node, int input) {
    ++slot.consumer_count;
    const std::string& op = node.op_type();
    slot.matmul_second_count += op == "MatMul" && input == 1 ? 1 : 0;
    slot.scale_and_statistic =
        slot.scale_and_statistic ||
        (op == "BatchNormalization" && input > 2 &&
         (node.input(input) == node.input(1) || node.input(input) == node.input(2)));
    slot.is_gathered = slot.is_gathered || (op == "Gather" && input == 0);
    slot.is_multiplied = slot.is_multiplied || op == "MatMul" || op == "Gemm" || op == "Transpose";
    if (slot.consumer_op.empty()) {
      slot.consumer_op = node.op_type();
      slot.consumer_name = node.name();
    }
  }

  // Reads what the exporter recorded about each value.
  void read_origins(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    for (const auto* infos : {&graph.value_info(), &graph.input()}) {
      for (const auto& info : *infos) {
        if (Slot* slot = has_marks(info) ? slot_called(g, info.name()) : nullptr) {
          ExporterMarks marks = read_marks(info);
          slot->origin = marks.origin;
          slot->folded_from = std::move(marks.folded_from);
          slot->transposed = marks.transposed;
          // If the slot has data, an optimizer may have merged it.
          slot->never_merged = marks.without_data && slot->kind == SlotKind::kUndefinedName;
        }
      }
    }
    for (const auto& node : graph.node()) {
      if (const auto reads = reads_parameter(node)) {
        for (const std::string& input : node.input()) {
          if (Slot* slot = slot_called(g, input)) {
            ++(*reads ? slot->parameter_uses : slot->other_uses);
            slot->read_as_buffer =
                slot->read_as_buffer ||
                (slot->kind == SlotKind::kUndefinedName && reads_as_buffer(node, slot->name));
          }
        }
      }
      const int weights_end = has_fused_batch_norm(node) ? node.input_size() : 0;
      for (int i = 1; i < weights_end; ++i) {
        if (Slot* slot = slot_called(g, node.input(i))) {
          slot->batch_norm_fused = true;
        }
      }
    }
  }

  void note_modules(std::uint32_t g) {
    for (const auto& node : graphs_[g].graph->node()) {
      std::optional<std::uint32_t> module;  // looked up when a weight is read
      for (const std::string& input : node.input()) {
        Slot* slot = slot_called(g, input);
        if (slot == nullptr || slot->used_in.size() == kMaxUsedIn) {
          continue;
        }
        module = module ? module : place_of_module(node);
        std::vector<std::uint32_t>& known = slot->used_in;
        const bool is_other = *module < facts_.modules.size() &&
                              facts_.modules[*module] != module_of_name(slot->name);
        if (is_other && std::find(known.begin(), known.end(), *module) == known.end()) {
          known.push_back(*module);
        }
      }
    }
  }

  [[nodiscard]] std::uint32_t place_of_module(const onnx::NodeProto& node) const {
    const std::string name = module_of(node);
    const auto found = std::lower_bound(facts_.modules.begin(), facts_.modules.end(), name);
    const bool known = !name.empty() && found != facts_.modules.end() && *found == name;
    return static_cast<std::uint32_t>((known ? found : facts_.modules.end()) -
                                      facts_.modules.begin());
  }

  void mark_inline(std::uint32_t g, const std::string& name) {
    std::string_view current = name;
    for (std::size_t steps = 0; !current.empty() && steps <= facts_.slots.size(); ++steps) {
      if (!inline_names_[g].insert(current).second) {
        return;
      }
      const Slot* slot = slot_called(g, current);
      if (slot == nullptr || slot->kind != SlotKind::kIdentityOutput || steps >= kMaxGraphDepth) {
        return;
      }
      current = slot->merged_into;
    }
  }

  Slot& add_slot(Value& value, std::uint32_t g, SlotKind kind) {
    value.slot = static_cast<std::uint32_t>(facts_.slots.size());
    Slot& slot = facts_.slots.emplace_back();
    slot.name = value.name;
    slot.kind = kind;
    slot.graph = g;
    return slot;
  }

  // The value that `name` means inside graph `g`: one of its own, or else of the graphs around it.
  std::optional<ValueId> resolve(std::uint32_t g, std::string_view name) const {
    for (;; g = graphs_[g].parent) {
      if (const auto found = places_[g].find(name); found || g == 0) {
        return found;
      }
    }
  }

  Slot* slot_of(ValueId value) {
    const std::uint32_t slot = value == kNoValue ? kNoSlot : values_[value].slot;
    return slot == kNoSlot ? nullptr : &facts_.slots[slot];
  }

  Slot* slot_called(std::uint32_t g, std::string_view name) {
    const auto value = name.empty() ? std::nullopt : resolve(g, name);
    return value ? slot_of(*value) : nullptr;
  }

  const onnx::TypeProto* info(std::uint32_t g, std::string_view name) {
    for (;; g = graphs_[g].parent) {
      const Infos& infos = infos_of(g);
      if (const auto found = infos.find(name); found != infos.end()) {
        return found->second;
      }
      if (g == 0) {
        return nullptr;
      }
    }
  }

  // The stated types of a graph's values; the list is made when it is first needed.
  using Infos = NameMap<const onnx::TypeProto*>;
  const Infos& infos_of(std::uint32_t g) {
    if (!infos_[g]) {
      const onnx::GraphProto& graph = *graphs_[g].graph;
      Infos& infos = infos_[g].emplace();
      for (const auto* values : {&graph.value_info(), &graph.output(), &graph.input()}) {
        for (const auto& info : *values) {
          infos.emplace(info.name(), &info.type());
        }
      }
    }
    return *infos_[g];
  }

  void list_names() {
    const auto is_other = [](const Value& value) { return value.slot == kNoSlot; };
    facts_.defined_names.reserve(
        static_cast<std::size_t>(std::count_if(values_.begin(), values_.end(), is_other)));
    for (const Value& value : values_) {
      if (is_other(value)) {
        facts_.defined_names.emplace_back(value.name);
      }
    }
    std::vector<std::string>& stay_inline = facts_.inline_names;
    for (const NameSet& names : inline_names_) {
      stay_inline.insert(stay_inline.end(), names.begin(), names.end());
    }
    std::sort(stay_inline.begin(), stay_inline.end());
    stay_inline.erase(std::unique(stay_inline.begin(), stay_inline.end()), stay_inline.end());
  }

  std::span<const GraphNode> graphs_;
  std::vector<Value> values_;         // of all graphs
  std::vector<NameIndexSet> places_;  // into values_, one a graph
  std::vector<ValueId> inputs_;       // of all nodes of all graphs, in order
  std::size_t next_input_ = 0;        // in `inputs_`, during a walk over all graphs
  bool has_duplicates_ = false;
  std::vector<std::optional<Infos>> infos_;  // one a graph
  std::vector<NameSet> inline_names_;  // one a graph; names point into the model, or into slots
  GraphFacts facts_;
};

}  // namespace

GraphFacts collect_facts(std::span<const GraphNode> graphs, std::int64_t ir_version,
                         bool* has_duplicates) {
  Collector collector(graphs);
  GraphFacts facts = collector.collect(ir_version);
  if (has_duplicates != nullptr) {
    *has_duplicates = collector.has_duplicates();
  }
  return facts;
}

}  // namespace onnx_external
