#include "onnx/matrix_uses.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/checked_math.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/matrix_roles.h"
#include "onnx/matrix_views.h"
#include "onnx/model_access.h"
#include "onnx/tensor_list.h"
#include "onnx/weight_graph.h"

namespace onnx_external {
namespace {

// Constants with fewer elements are not weights.
constexpr std::uint64_t kMinConstantElements = 1024;

double attribute_or(const onnx::NodeProto& node, std::string_view name, double otherwise) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) {
      return attribute.has_f() ? static_cast<double>(attribute.f())
                               : static_cast<double>(attribute.i());
    }
  }
  return otherwise;
}

std::string operator_of(const onnx::NodeProto& node) {
  return (is_default_domain(node) ? "" : node.domain() + ".") + node.op_type();
}

// The indices of the model's own tensors, by their messages.
struct OwnTensors {
  std::unordered_map<const onnx::TensorProto*, std::size_t> external;
  std::unordered_map<const onnx::TensorProto*, std::size_t> inside;

  explicit OwnTensors(const Model& model) {
    for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
      external.emplace(&ModelAccess::external_proto(model, i), i);
    }
    for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
      inside.emplace(&ModelAccess::inline_proto(model, i), i);
    }
  }
};

class MatrixFinder {
 public:
  MatrixFinder(const Model& model, WeightGraph graph,
               std::span<const std::optional<StoredSlot>> stored, MatchedInputs inputs)
      : model_(model),
        graph_(std::move(graph)),
        stored_(stored),
        inputs_(inputs),
        own_(model),
        known_(known_values()),
        destinies_(list_destinies(graph_, known_)) {}

  Result<std::vector<GraphWeight>> find() {
    const std::vector<Slot>& slots = model_.facts().slots;
    for (std::uint32_t i = 0; i < slots.size(); ++i) {
      if (has_value(i)) {
        TRY(add_slot(i));
      }
    }
    for (ValueId value = 0; value < graph_.values().size(); ++value) {
      if (graph_[value].producer != kNoProducer && graph_[value].tensor != nullptr) {
        add_constant(value);
      }
    }
    return std::move(weights_);
  }

 private:
  [[nodiscard]] bool is_stored(std::uint32_t slot) const {
    return slot < stored_.size() && stored_[slot];
  }
  [[nodiscard]] bool has_value(std::uint32_t slot) const {
    return is_stored(slot) || model_.facts().slots[slot].has_data;
  }

  // Values that are the same in each run.
  std::vector<bool> known_values() {
    std::vector<bool> known(graph_.values().size());
    for (std::uint32_t i = 0; i < model_.facts().slots.size(); ++i) {
      known[graph_.value_of_slot(i)] = has_value(i);
    }
    const auto is_known = [&](ValueId value) { return value == kNoValue || known[value]; };
    for (const GraphNodeValues& node : graph_.nodes()) {
      const bool is_fixed =
          node.node->op_type() == "Constant" ||
          (!node.inputs.empty() && std::all_of(node.inputs.begin(), node.inputs.end(), is_known));
      if (!is_fixed || !is_default_domain(*node.node)) {
        continue;
      }
      for (const ValueId output : node.outputs) {
        if (output != kNoValue) {
          known[output] = true;
        }
      }
    }
    return known;
  }

  Status add_slot(std::uint32_t i) {
    const ValueId value = graph_.value_of_slot(i);
    GraphWeight weight;
    weight.name = model_.facts().slots[i].name;
    weight.slot = i;
    weight.is_stored = is_stored(i);
    Shape source;
    if (weight.is_stored) {
      weight.key = stored_[i]->key;
      weight.data_type = stored_[i]->data_type;
      source = stored_[i]->shape;
      TRY_ASSIGN_IN(quote(weight.name), weight.dims,
                    apply_recipe(with_cast(stored_[i]->recipe, false), source));
    } else if (const auto* tensor = graph_[value].tensor; tensor != nullptr) {
      weight.data_type = tensor->data_type();
      weight.dims = dims_of(*tensor);
      source = weight.dims;
      note_own(*tensor, weight);
    }
    if (!onnx_is_floating(weight.data_type)) {
      return {};
    }
    const bool stays_input = !weight.is_stored || inputs_ == MatchedInputs::kKeep;
    if (graph_.is_replaceable(value) && stays_input) {
      weight.reason = FloatReason::kReplaceable;
    }
    ViewChain chain(source);
    for (const RecipeStep& step : weight.is_stored ? stored_[i]->recipe : Recipe()) {
      if (!chain.apply(step)) {
        weight.reason = FloatReason::kView;
        weight.detail = "its recipe";
      }
    }
    add(std::move(weight), value, source, std::move(chain));
    return {};
  }

  void add_constant(ValueId value) {
    const onnx::TensorProto& tensor = *graph_[value].tensor;
    GraphWeight weight;
    weight.name = std::string(graph_[value].name);
    weight.data_type = tensor.data_type();
    weight.dims = dims_of(tensor);
    const auto elements = element_count(weight.dims);
    if (!onnx_is_floating(weight.data_type) || weight.dims.size() < 2 || !elements ||
        *elements < kMinConstantElements) {
      return;
    }
    note_own(tensor, weight);
    ViewChain chain(weight.dims);
    const Shape source = weight.dims;
    add(std::move(weight), value, source, std::move(chain));
  }

  void note_own(const onnx::TensorProto& tensor, GraphWeight& weight) const {
    if (const auto found = own_.external.find(&tensor); found != own_.external.end()) {
      weight.external_tensor = found->second;
    } else if (const auto inside = own_.inside.find(&tensor); inside != own_.inside.end()) {
      weight.inline_tensor = inside->second;
    }
  }

  void add(GraphWeight weight, ValueId value, const Shape& source, ViewChain chain) {
    const auto elements = element_count(weight.dims);
    const auto bytes = onnx_nbytes(weight.data_type, weight.dims);
    if (!elements || *elements == 0 || !bytes) {
      return;
    }
    weight.elements = *elements;
    weight.bytes = *bytes;
    if (weight.reason == FloatReason::kNone && weight.dims.size() < 2) {
      weight.reason = FloatReason::kVector;
    }
    if (weight.reason == FloatReason::kNone) {
      follow(value, {std::move(chain), weight.data_type}, source, weight);
    }
    if (weight.reason != FloatReason::kNone) {
      weight.matrices.clear();
      weight.views.clear();
    }
    weights_.push_back(std::move(weight));
  }

  struct Reached {
    ValueId value = kNoValue;
    WeightView view;
  };

  // Follows a weight to everything that reads it. A view has one producer, which reads one view.
  // Therefore the views form a tree, and each node is visited once.
  void follow(ValueId root, WeightView view, const Shape& source, GraphWeight& weight) {
    places_.clear();
    std::vector<Reached> left;
    left.push_back({root, std::move(view)});
    while (!left.empty() && weight.reason == FloatReason::kNone) {
      const Reached next = std::move(left.back());
      left.pop_back();
      if (graph_[next.value].output_of != nullptr) {
        refuse(FloatReason::kGraphOutput, "", weight);
      }
      const auto readers = graph_.readers(next.value);
      for (std::size_t i = readers.size(); i > 0; --i) {
        read(readers[i - 1], next.view, source, left, weight);
      }
    }
    if (weight.reason == FloatReason::kNone) {
      judge(weight);
    }
  }

  static void refuse(FloatReason reason, std::string detail, GraphWeight& weight) {
    if (weight.reason == FloatReason::kNone) {
      weight.reason = reason;
      weight.detail = std::move(detail);
    }
  }

  void read(const ValueReader& reader, const WeightView& view, const Shape& source,
            std::vector<Reached>& left, GraphWeight& weight) {
    const GraphNodeValues& node = graph_.nodes()[reader.node];
    const std::string& op = node.node->op_type();
    const bool is_default = is_default_domain(*node.node);
    if (is_filled_identity(node)) {
      return;  // the save removes it
    }
    if (is_default && moves_weights(*node.node) && reader.input == 0) {
      if (auto views = follow_view(graph_, node, view); views && defines_all(node, reader.node)) {
        weight.views.push_back(node.node);
        for (std::size_t i = views->size(); i > 0; --i) {
          left.push_back({(*views)[i - 1].first, std::move((*views)[i - 1].second)});
        }
        return;
      }
      if (op != "Gather") {
        return refuse(FloatReason::kView, op, weight);
      }
    }
    if (is_default && (op == "MatMul" || op == "Gemm") && reader.input < 2 && is_complete(node)) {
      multiply(reader, view, source, weight);
    } else if (is_default && op == "Gather" && reader.input == 0 && is_complete(node)) {
      gather(node, view, source, weight);
    } else {
      refuse(FloatReason::kReader, operator_of(*node.node), weight);
    }
  }

  // Returns whether the node has the two inputs and the output that its operator requires.
  [[nodiscard]] static bool is_complete(const GraphNodeValues& node) {
    return node.inputs.size() >= 2 && node.inputs[0] != kNoValue && node.inputs[1] != kNoValue &&
           node.outputs.size() == 1 && node.outputs.front() != kNoValue;
  }

  [[nodiscard]] bool is_filled_identity(const GraphNodeValues& node) const {
    if (node.node->op_type() != "Identity" || node.outputs.size() != 1 ||
        node.outputs.front() == kNoValue) {
      return false;
    }
    const std::uint32_t slot = graph_[node.outputs.front()].slot;
    return slot != kNoSlot && is_stored(slot) &&
           model_.facts().slots[slot].kind == SlotKind::kIdentityOutput;
  }

  [[nodiscard]] bool defines_all(const GraphNodeValues& node, std::uint32_t number) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId value) {
      return value == kNoValue || graph_[value].producer == number;
    });
  }

  void multiply(const ValueReader& reader, const WeightView& view, const Shape& source,
                GraphWeight& weight) {
    const GraphNodeValues& node = graph_.nodes()[reader.node];
    const bool is_gemm = node.node->op_type() == "Gemm";
    if (reader.input == 0) {
      return refuse(FloatReason::kFirstInput, node.node->op_type(), weight);
    }
    if (is_gemm &&
        (attribute_or(*node.node, "transA", 0) != 0 || attribute_or(*node.node, "alpha", 1) != 1 ||
         attribute_or(*node.node, "beta", 1) != 1)) {
      return refuse(FloatReason::kGemm, "", weight);
    }
    MatrixUse use{node.node, node.graph};
    WeightView rows = view;
    const bool has_rows = is_gemm && attribute_or(*node.node, "transB", 0) != 0;
    if (view.chain.shape().size() != 2 || (!has_rows && !rows.chain.permute({}))) {
      return refuse(FloatReason::kBatches, node.node->op_type(), weight);
    }
    const std::int64_t n = rows.chain.shape().front();
    use.role = role_of(node, n);
    if (is_gemm && node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      use.addend = node.node->input(2);
      use.addend_is_bias = is_bias(node.inputs[2], n);
    }
    add_use(rows, source, std::move(use), weight);
  }

  void gather(const GraphNodeValues& node, const WeightView& view, const Shape& source,
              GraphWeight& weight) {
    if (view.chain.shape().size() != 2) {
      return refuse(FloatReason::kBatches, "Gather", weight);
    }
    const double axis = attribute_or(*node.node, "axis", 0);
    if (axis != 0 && axis != -2) {
      return refuse(FloatReason::kGatherAxis, "", weight);
    }
    WeightView rows = view;
    rows.data_type = type_behind(node.outputs.front(), view.data_type);
    add_use(rows, source, {node.node, node.graph, MatrixRole::kEmbedding}, weight);
  }

  // The type to which all readers of a value convert it, float32 or float16; `type` if they do not.
  // A table that is stored in a narrow type is looked up in that type, and its rows are converted.
  [[nodiscard]] std::int32_t type_behind(ValueId value, std::int32_t type) const {
    const auto readers = graph_.readers(value);
    std::int32_t found = 0;
    for (const ValueReader& reader : readers) {
      const onnx::NodeProto& node = *graph_.nodes()[reader.node].node;
      const auto to = is_default_domain(node) && node.op_type() == "Cast"
                          ? static_cast<std::int32_t>(attribute_or(node, "to", 0))
                          : 0;
      const bool is_one = found == 0 || to == found;
      if (!is_one || (to != onnx::TensorProto::FLOAT && to != onnx::TensorProto::FLOAT16)) {
        return type;
      }
      found = to;
    }
    return readers.empty() || graph_[value].output_of != nullptr ? type : found;
  }

  [[nodiscard]] MatrixRole role_of(const GraphNodeValues& node, std::int64_t n) const {
    const Destiny destiny = destinies_[node.outputs.front()];
    if (destiny.chooses && n <= kMaxRouted) {
      return MatrixRole::kRouter;
    }
    return destiny.chooses || destiny.leaves ? MatrixRole::kHead : MatrixRole::kLinear;
  }

  // A C of shape [n] whose shape is stated.
  [[nodiscard]] bool is_bias(ValueId value, std::int64_t n) const {
    const WeightValue& addend = graph_[value];
    if (addend.slot != kNoSlot && is_stored(addend.slot)) {
      const StoredSlot& stored = *stored_[addend.slot];
      const auto shape = apply_recipe(stored.recipe, stored.shape);
      return shape && *shape == Shape{n};
    }
    return addend.tensor != nullptr && dims_of(*addend.tensor) == Shape{n};
  }

  void add_use(const WeightView& rows, const Shape& source, MatrixUse use, GraphWeight& weight) {
    if (rows.data_type != onnx::TensorProto::FLOAT &&
        rows.data_type != onnx::TensorProto::FLOAT16) {
      return refuse(FloatReason::kType, std::string(onnx_type_name(rows.data_type)), weight);
    }
    const Shape shape = rows.chain.shape();
    Recipe recipe = rows.chain.recipe();
    const auto made = apply_recipe(recipe, source);
    if (!made || *made != shape) {
      return refuse(FloatReason::kView, "a chain of nodes", weight);
    }
    const auto [place, is_new] = places_.emplace(recipe_text(recipe), weight.matrices.size());
    if (is_new) {
      weight.matrices.push_back({std::move(recipe), shape[0], shape[1], rows.data_type, {}});
    }
    Matrix& matrix = weight.matrices[place->second];
    if (matrix.data_type != rows.data_type) {
      return refuse(FloatReason::kSeveral, "", weight);
    }
    matrix.uses.push_back(std::move(use));
  }

  // Slices of a weight may be separate matrices. If they are larger than the weight in total, the
  // weight is read in two ways that would each need their own codes.
  static void judge(GraphWeight& weight) {
    if (weight.matrices.empty()) {
      return refuse(FloatReason::kUnread, "", weight);
    }
    std::uint64_t elements = 0;
    for (const Matrix& matrix : weight.matrices) {
      const auto size = static_cast<std::uint64_t>(matrix.n) * static_cast<std::uint64_t>(matrix.k);
      const auto sum = checked_add(elements, size);
      if (!sum || *sum > weight.elements) {
        return refuse(FloatReason::kSeveral, "", weight);
      }
      elements = *sum;
    }
  }

  const Model& model_;
  WeightGraph graph_;
  std::span<const std::optional<StoredSlot>> stored_;
  MatchedInputs inputs_;
  OwnTensors own_;
  std::vector<bool> known_;
  std::vector<Destiny> destinies_;
  OwnedNameMap<std::size_t> places_;  // positions of the matrices of a weight, by recipe
  std::vector<GraphWeight> weights_;
};

}  // namespace

Result<std::vector<GraphWeight>> find_matrices(const Model& model,
                                               std::span<const std::optional<StoredSlot>> stored,
                                               MatchedInputs inputs) {
  TRY_ASSIGN(auto graph, WeightGraph::of(model));
  return MatrixFinder(model, std::move(graph), stored, inputs).find();
}

}  // namespace onnx_external
