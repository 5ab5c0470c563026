#include "onnx/slots.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "onnx/external_data.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kNotASlot = Attachment::kNoSlot;
// Shapes of a higher rank count as not stated: no checkpoint has such tensors, and Identity nodes
// copy what their input states.
constexpr int kMaxSlotRank = 64;

// What a graph defines under a name, and which slot that is.
using Names = NameMap<std::uint32_t>;

bool is_default_domain(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

bool is_identity(const onnx::NodeProto& node) {
  return node.op_type() == "Identity" && is_default_domain(node) && node.input_size() == 1 &&
         node.output_size() == 1 && !node.input(0).empty() && !node.output(0).empty();
}

// True when the output's element type is that of input number `input`.
bool keeps_type(const onnx::NodeProto& node, int input) {
  static constexpr std::array<std::string_view, 8> kAllInputs = {
      "MatMul", "Gemm", "Conv", "Add", "Transpose", "Mul", "Sub", "Div"};
  if (!is_default_domain(node) || node.output_size() == 0) {
    return false;
  }
  if (node.op_type() == "Gather") {
    return input == 0;  // the indices have a type of their own
  }
  return std::find(kAllInputs.begin(), kAllInputs.end(), node.op_type()) != kAllInputs.end();
}

std::optional<SymbolicShape> shape_of(const onnx::TypeProto::Tensor& type) {
  if (!type.has_shape() || type.shape().dim_size() > kMaxSlotRank) {
    return std::nullopt;
  }
  SymbolicShape shape;
  for (const auto& dim : type.shape().dim()) {
    const bool known = dim.has_dim_value() && dim.dim_value() >= 0;
    shape.push_back(known ? std::optional<std::int64_t>(dim.dim_value()) : std::nullopt);
  }
  return shape;
}

// Plain for the operators that exist, quoted for anything else that a file may say.
std::string op_text(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  const bool plain = std::all_of(op.begin(), op.end(),
                                 [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return plain && op.size() <= kMaxQuotedBytes ? op : quote(op);
}

class Collector {
 public:
  explicit Collector(std::span<const GraphNode> graphs)
      : graphs_(graphs),
        names_(graphs.size()),
        infos_(graphs.size()),
        inline_names_(graphs.size()) {}

  GraphFacts collect(std::int64_t ir_version) {
    facts_.ir_version = ir_version;
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      define_values(g);
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      define_initializers(g);
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      find_undefined(g);
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      find_identities(g);
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      count_consumers(g);
    }
    list_names();
    return std::move(facts_);
  }

 private:
  // Inputs, and outputs of nodes. The main graph's tensor inputs are slots; those of subgraphs are
  // bound by the node that owns the graph.
  void define_values(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    const auto values = static_cast<std::size_t>(graph.input_size()) +
                        static_cast<std::size_t>(graph.initializer_size()) +
                        static_cast<std::size_t>(graph.node_size());
    names_[g] = table_for<Names>(values);
    if (g == 0) {
      facts_.graph_inputs.reserve(static_cast<std::size_t>(graph.input_size()));
      facts_.slots.reserve(static_cast<std::size_t>(graph.input_size()) +
                           static_cast<std::size_t>(graph.initializer_size()));
    }
    for (const auto& info : graph.value_info()) {
      infos_[g].emplace(info.name(), &info.type());
    }
    for (const auto& info : graph.output()) {
      infos_[g].emplace(info.name(), &info.type());
    }
    for (const auto& tensor : graph.initializer()) {
      names_[g].emplace(tensor.name(), kNotASlot);  // known before the inputs ask for it
    }
    for (int i = 0; i < graph.input_size(); ++i) {
      define_input(g, i);
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      names_[g].emplace(sparse.values().name(), kNotASlot);
    }
    for (const auto& node : graph.node()) {
      for (const std::string& output : node.output()) {
        names_[g].emplace(output, kNotASlot);
      }
    }
  }

  void define_input(std::uint32_t g, int index) {
    const auto& input = graphs_[g].graph->input(index);
    if (g == 0) {
      facts_.graph_inputs.push_back(input.name());
    }
    const bool fresh = names_[g].emplace(input.name(), kNotASlot).second;
    if (g != 0 || !fresh || !input.type().has_tensor_type()) {
      return;
    }
    Slot& slot = add_slot(g, input.name(), SlotKind::kGraphInput);
    slot.input_index = static_cast<std::uint32_t>(index);
    slot.elem_type = input.type().tensor_type().elem_type();
    slot.shape = shape_of(input.type().tensor_type());
  }

  void define_initializers(std::uint32_t g) {
    for (const auto& tensor : graphs_[g].graph->initializer()) {
      if (tensor.name().empty() || names_[g].at(tensor.name()) != kNotASlot) {
        continue;
      }
      Slot& slot = add_slot(g, tensor.name(), SlotKind::kInitializer);
      slot.elem_type = tensor.data_type();
      if (tensor.dims_size() <= kMaxSlotRank) {
        slot.shape = SymbolicShape(tensor.dims().begin(), tensor.dims().end());
      }
      slot.has_data = has_data(tensor);
    }
  }

  // A name that nothing defines becomes a slot of the main graph, where every subgraph sees it.
  void find_undefined(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    for (const auto& node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i) {
        if (std::optional<std::uint32_t> slot = undefined_slot(g, node.input(i))) {
          learn_type(g, node, i, facts_.slots[*slot]);
        }
      }
    }
    for (const auto& output : graph.output()) {
      (void)undefined_slot(g, output.name());
    }
  }

  std::optional<std::uint32_t> undefined_slot(std::uint32_t g, const std::string& name) {
    if (name.empty()) {
      return std::nullopt;  // an optional input that is left out
    }
    const std::optional<std::uint32_t> found = resolve(g, name);
    if (found) {
      const bool undefined =
          *found != kNotASlot && facts_.slots[*found].kind == SlotKind::kUndefinedName;
      return undefined ? found : std::nullopt;
    }
    Slot& slot = add_slot(0, name, SlotKind::kUndefinedName);
    describe(g, name, slot);
    return static_cast<std::uint32_t>(facts_.slots.size() - 1);
  }

  // Fills in what the value_info of `name`, as graph `g` sees it, says.
  void describe(std::uint32_t g, std::string_view name, Slot& slot) const {
    if (const onnx::TypeProto* type = info(g, name); type != nullptr && type->has_tensor_type()) {
      slot.elem_type = type->tensor_type().elem_type();
      slot.shape = shape_of(type->tensor_type());
    }
  }

  void learn_type(std::uint32_t g, const onnx::NodeProto& node, int input, Slot& slot) const {
    if (slot.elem_type != 0 || !keeps_type(node, input)) {
      return;
    }
    const onnx::TypeProto* type = info(g, node.output(0));
    if (type != nullptr && type->has_tensor_type()) {
      slot.elem_type = type->tensor_type().elem_type();
    }
  }

  // Nodes stand in topological order, so an Identity over another Identity finds it done.
  void find_identities(std::uint32_t g) {
    for (const auto& node : graphs_[g].graph->node()) {
      if (!is_identity(node)) {
        continue;
      }
      const std::optional<std::uint32_t> source = resolve(g, node.input(0));
      std::uint32_t& own = names_[g].at(node.output(0));
      if (!source || *source == kNotASlot || own != kNotASlot) {
        continue;
      }
      const std::int32_t elem_type = facts_.slots[*source].elem_type;
      std::optional<SymbolicShape> shape = facts_.slots[*source].shape;
      own = static_cast<std::uint32_t>(facts_.slots.size());
      Slot& slot = facts_.slots.emplace_back();
      slot.name = node.output(0);
      slot.kind = SlotKind::kIdentityOutput;
      slot.graph = g;
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
        if (Slot* slot = slot_of(g, node.input(i))) {
          consume(*slot, node);
        }
        if (scales && i > 0) {
          mark_inline(g, node.input(i));
        }
      }
    }
    for (const auto& output : graph.output()) {
      if (Slot* slot = slot_of(g, output.name())) {
        ++slot->consumer_count;
        if (slot->consumers.size() < kMaxListedConsumers) {
          slot->consumers.emplace_back("graph output");
        }
      }
    }
  }

  static void consume(Slot& slot, const onnx::NodeProto& node) {
    ++slot.consumer_count;
    if (slot.consumers.size() < kMaxListedConsumers) {
      slot.consumers.push_back(node.name().empty() ? op_text(node)
                                                   : op_text(node) + " " + quote(node.name()));
    }
  }

  void mark_inline(std::uint32_t g, const std::string& name) {
    std::string_view current = name;
    for (std::size_t steps = 0; !current.empty() && steps <= facts_.slots.size(); ++steps) {
      if (!inline_names_[g].insert(current).second) {
        return;
      }
      const Slot* slot = slot_of(g, current);
      if (slot == nullptr || slot->kind != SlotKind::kIdentityOutput || steps >= kMaxGraphDepth) {
        return;
      }
      current = slot->merged_into;
    }
  }

  // `name` belongs to the model and outlives names_.
  Slot& add_slot(std::uint32_t g, const std::string& name, SlotKind kind) {
    Slot& slot = facts_.slots.emplace_back();
    slot.name = name;
    slot.kind = kind;
    slot.graph = g;
    names_[g].insert_or_assign(name, static_cast<std::uint32_t>(facts_.slots.size() - 1));
    return slot;
  }

  // What `name` means inside graph `g`: its own names first, then those of the enclosing graphs.
  std::optional<std::uint32_t> resolve(std::uint32_t g, std::string_view name) const {
    for (;; g = graphs_[g].parent) {
      if (const auto found = names_[g].find(name); found != names_[g].end()) {
        return found->second;
      }
      if (g == 0) {
        return std::nullopt;
      }
    }
  }

  Slot* slot_of(std::uint32_t g, std::string_view name) {
    const std::optional<std::uint32_t> found = name.empty() ? std::nullopt : resolve(g, name);
    return found && *found != kNotASlot ? &facts_.slots[*found] : nullptr;
  }

  const onnx::TypeProto* info(std::uint32_t g, std::string_view name) const {
    for (;; g = graphs_[g].parent) {
      if (const auto found = infos_[g].find(name); found != infos_[g].end()) {
        return found->second;
      }
      if (g == 0) {
        return nullptr;
      }
    }
  }

  static std::vector<std::string> sorted_unique(std::vector<std::string_view> names) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return {names.begin(), names.end()};
  }

  void list_names() {
    std::vector<std::string_view> defined;
    std::vector<std::string_view> stay_inline;
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      for (const auto& [name, slot] : names_[g]) {
        if (slot == kNotASlot) {
          defined.push_back(name);
        }
      }
      stay_inline.insert(stay_inline.end(), inline_names_[g].begin(), inline_names_[g].end());
    }
    facts_.defined_names = sorted_unique(std::move(defined));
    facts_.inline_names = sorted_unique(std::move(stay_inline));
  }

  std::span<const GraphNode> graphs_;
  std::vector<Names> names_;  // one a graph; keys point into the model
  std::vector<NameMap<const onnx::TypeProto*>> infos_;
  std::vector<NameSet> inline_names_;  // one a graph, as names_
  GraphFacts facts_;
};

}  // namespace

GraphFacts collect_facts(std::span<const GraphNode> graphs, std::int64_t ir_version) {
  return Collector(graphs).collect(ir_version);
}

}  // namespace onnx_external
