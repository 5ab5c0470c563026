#include "onnx/matrix_nodes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/kept_nodes.h"
#include "onnx/model_access.h"
#include "onnx/tensor_text.h"

namespace onnx_external {
namespace {

constexpr std::string_view kContrib = "com.microsoft";
using Part = MatrixTensor::Part;

void set_attribute(const char* name, std::int64_t value, onnx::NodeProto& node) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

// Returns a copy of the node with another operator. Fields unknown to the protobuf classes are
// kept.
onnx::NodeProto with_operator(const onnx::NodeProto& node, const char* op, std::string_view domain,
                              const std::vector<std::string_view>& inputs) {
  onnx::NodeProto fresh(node);
  fresh.set_op_type(op);
  fresh.set_domain(domain.data(), domain.size());
  fresh.clear_input();
  fresh.clear_attribute();
  for (const std::string_view input : inputs) {
    fresh.add_input(input.data(), input.size());
  }
  while (fresh.input_size() > 0 && fresh.input(fresh.input_size() - 1).empty()) {
    fresh.mutable_input()->RemoveLast();
  }
  return fresh;
}

// Returns MatMulNBits(A, B, scales, zero_points, g_idx, bias). g_idx is always left out, because
// kernels compute wrong results with it.
onnx::NodeProto product_node(const MatrixPlan& plan, const ChosenMatrix& chosen,
                             const MatrixUse& use, std::string_view input) {
  const Matrix& matrix = plan.matrix_of(chosen);
  const std::string_view bias = use.addend_is_bias ? std::string_view(use.addend) : "";
  onnx::NodeProto node =
      with_operator(*use.node, "MatMulNBits", kContrib,
                    {input, chosen.name_of(Part::kCodes), chosen.name_of(Part::kScales),
                     chosen.name_of(Part::kZeroPoints), "", bias});
  set_attribute("K", matrix.k, node);
  set_attribute("N", matrix.n, node);
  set_attribute("bits", chosen.scheme.bits, node);
  set_attribute("block_size", chosen.scheme.block, node);
  if (plan.options.accuracy_level != 0) {
    set_attribute("accuracy_level", plan.options.accuracy_level, node);
  }
  return node;
}

onnx::NodeProto table_node(const ChosenMatrix& chosen, const MatrixUse& use) {
  onnx::NodeProto node =
      with_operator(*use.node, "GatherBlockQuantized", kContrib,
                    {chosen.name_of(Part::kTable), use.node->input(1),
                     chosen.name_of(Part::kScales), chosen.name_of(Part::kZeroPoints)});
  set_attribute("gather_axis", 0, node);
  set_attribute("quantize_axis", 1, node);
  set_attribute("bits", chosen.scheme.bits, node);
  set_attribute("block_size", chosen.scheme.block, node);
  return node;
}

class MatrixReplacer {
 public:
  MatrixReplacer(const Model& model, const MatrixPlan& plan, ModelEdits& edits)
      : model_(model), plan_(plan), edits_(edits), names_(model.facts()) {
    for (const ChosenMatrix& chosen : plan.matrices) {
      for (const MatrixTensor& tensor : chosen.tensors) {
        (void)names_.take(tensor.name);
      }
    }
  }

  Status replace() {
    TRY_ASSIGN(graphs_, list_graphs(model_.proto().graph()));
    gone_.resize(graphs_.size());
    kept_.emplace(plan_, graphs_, [this](onnx::NodeProto fresh, const onnx::NodeProto& node) {
      return put_before(std::move(fresh), node);
    });
    for (const ChosenMatrix& chosen : plan_.matrices) {
      for (const MatrixUse& use : plan_.matrix_of(chosen).uses) {
        replace_node(chosen, use);
        if (use.role == MatrixRole::kEmbedding) {  // its rows may have another type now
          gone_[use.graph].insert(use.node->output(0));
        }
      }
    }
    for (const GraphWeight& weight : plan_.weights) {
      if (weight.reason == FloatReason::kNone) {
        remove_weight(weight);
      }
    }
    for (const std::size_t i : plan_.unread_inline) {
      const onnx::TensorProto& tensor = ModelAccess::inline_proto(model_, i);
      edits_.removed.insert(&tensor);
      constants_.insert(&tensor);
    }
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      clean(*graphs_[g].graph, gone_[g]);
    }
    import_domain();
    return {};
  }

 private:
  void replace_node(const ChosenMatrix& chosen, const MatrixUse& use) {
    const bool is_gather = use.role == MatrixRole::kEmbedding;
    if (plan_.options.form == QuantizedForm::kDequantizeLinear) {
      return is_gather ? gather_codes(chosen, use) : dequantize_matrix(chosen, use);
    }
    if (is_gather && chosen.scheme.terms) {
      const std::string rows = put_before(table_node(chosen, use), *use.node);
      const onnx::NodeProto last = kept_->add_to_rows(chosen, use, rows);
      const std::vector<std::string_view> inputs(last.input().begin(), last.input().end());
      return put(with_operator(*use.node, last.op_type().c_str(), "", inputs), *use.node);
    }
    if (is_gather) {
      return put(table_node(chosen, use), *use.node);
    }
    onnx::NodeProto product = product_node(plan_, chosen, use, kept_->input_of(chosen, use));
    const bool is_added = !use.addend.empty() && !use.addend_is_bias;
    if (chosen.scheme.terms) {
      const std::string terms = kept_->terms_of(chosen, use);
      const std::string inner = put_before(std::move(product), *use.node);
      product = with_operator(*use.node, "Add", "", {inner, terms});
    }
    if (!is_added) {
      return put(product, *use.node);
    }
    // The addend is not a bias with one value per column, so it needs an Add node of its own.
    const std::string inner = put_before(std::move(product), *use.node);
    put(with_operator(*use.node, "Add", "", {inner, use.addend}), *use.node);
  }

  // Adds the nodes that dequantize some rows: Gather(codes), Gather(scales), Gather(zero points),
  // DequantizeLinear.
  void gather_codes(const ChosenMatrix& chosen, const MatrixUse& use) {
    const std::string& ids = use.node->input(1);
    const auto gather = [&](Part part) {
      return put_before(with_operator(*use.node, "Gather", "", {chosen.name_of(part), ids}),
                        *use.node);
    };
    const std::string codes = gather(Part::kCodes);
    const std::string scales = gather(Part::kScales);
    const std::string zero_points = chosen.scheme.zero_points
                                        ? gather(Part::kZeroPoints)
                                        : middle_zero_points(chosen, scales, *use.node);
    onnx::NodeProto node =
        with_operator(*use.node, "DequantizeLinear", "", {codes, scales, zero_points});
    set_attribute("axis", -1, node);
    set_attribute("block_size", chosen.scheme.block, node);
    put(node, *use.node);
  }

  // ONNX Runtime folds the Transposes, and fuses DequantizeLinear(axis 0) and the product.
  void dequantize_matrix(const ChosenMatrix& chosen, const MatrixUse& use) {
    const auto transpose = [&](Part part) {
      return put_before(with_operator(*use.node, "Transpose", "", {chosen.name_of(part)}),
                        *use.node);
    };
    const std::string codes = transpose(Part::kCodes);
    const std::string scales = transpose(Part::kScales);
    const std::string zero_points = chosen.scheme.zero_points
                                        ? transpose(Part::kZeroPoints)
                                        : middle_zero_points(chosen, scales, *use.node);
    onnx::NodeProto node =
        with_operator(*use.node, "DequantizeLinear", "", {codes, scales, zero_points});
    set_attribute("axis", 0, node);
    set_attribute("block_size", chosen.scheme.block, node);
    onnx::NodeProto product(*use.node);
    product.set_input(1, put_before(std::move(node), *use.node));
    product.clear_attribute();  // of a Gemm: alpha, beta and transA are the default
    put(product, *use.node);
  }

  // Returns one zero point of 2^(bits-1) for each scale.
  std::string middle_zero_points(const ChosenMatrix& chosen, const std::string& scales,
                                 const onnx::NodeProto& node) {
    const std::string shape = put_before(with_operator(node, "Shape", "", {scales}), node);
    onnx::NodeProto fill = with_operator(node, "ConstantOfShape", "", {shape});
    onnx::AttributeProto& value = *fill.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(onnx::TensorProto::UINT8);
    value.mutable_t()->add_dims(1);
    value.mutable_t()->set_raw_data(
        std::string(1, static_cast<char>(1 << (chosen.scheme.bits - 1))));
    std::string filled = put_before(std::move(fill), node);
    if (chosen.scheme.bits == 8) {
      return filled;
    }
    onnx::NodeProto cast = with_operator(node, "Cast", "", {filled});
    set_attribute("to", onnx_data_type(DType::kUInt4), cast);
    return put_before(std::move(cast), node);
  }

  // Inserts a node before another one. Returns the new name of its output, which is also the node's
  // name.
  std::string put_before(onnx::NodeProto fresh, const onnx::NodeProto& node) {
    const std::string output = names_.take(node.output(0) + "_" + fresh.op_type());
    fresh.set_name(output);
    fresh.clear_output();
    fresh.add_output(output);
    ModelText& text = edits_.before[&node];
    const ModelText::Mark begin = text.here();
    append_message(fresh, text);
    text.wrap(begin, onnx::GraphProto::kNodeFieldNumber);
    return output;
  }

  void put(const onnx::NodeProto& fresh, const onnx::NodeProto& node) {
    ModelText text;
    append_message(fresh, text);
    edits_.replaced.insert_or_assign(&node, std::move(text));
  }

  void remove_weight(const GraphWeight& weight) {
    if (weight.slot != kNoSlot) {
      const Slot& slot = model_.facts().slots[weight.slot];
      gone_[slot.graph].insert(slot.name);
    } else {
      constants_.insert(weight.inline_tensor
                            ? &ModelAccess::inline_proto(model_, *weight.inline_tensor)
                            : &ModelAccess::external_proto(model_, *weight.external_tensor));
    }
    for (const onnx::NodeProto* view : weight.views) {
      edits_.removed.insert(view);
      views_.insert(view);
    }
  }

  // Removes what defines and describes the values that are gone.
  void clean(const onnx::GraphProto& graph, NameSet& gone) {
    for (const auto& node : graph.node()) {
      const bool is_view = views_.contains(&node);
      const bool is_constant = std::any_of(
          node.attribute().begin(), node.attribute().end(),
          [&](const auto& each) { return each.has_t() && constants_.contains(&each.t()); });
      const bool is_filled =
          node.op_type() == "Identity" && node.output_size() == 1 && gone.contains(node.output(0));
      if (is_view || is_constant || is_filled) {
        edits_.removed.insert(&node);
        gone.insert(node.output().begin(), node.output().end());
      }
    }
    const auto remove = [&](const auto& messages, const auto& name_of) {
      for (const auto& message : messages) {
        if (gone.contains(name_of(message))) {
          edits_.removed.insert(&message);
        }
      }
    };
    const auto name = [](const auto& message) -> const std::string& { return message.name(); };
    if (!gone.empty()) {
      remove(graph.initializer(), name);
      remove(graph.input(), name);
      remove(graph.value_info(), name);
      remove(graph.quantization_annotation(),
             [](const auto& message) -> const std::string& { return message.tensor_name(); });
    }
  }

  void import_domain() {
    const onnx::ModelProto& proto = model_.proto();
    const auto& imports = proto.opset_import();
    if (plan_.matrices.empty() || plan_.options.form != QuantizedForm::kMatMulNBits ||
        std::any_of(imports.begin(), imports.end(),
                    [](const auto& each) { return each.domain() == kContrib; })) {
      return;
    }
    onnx::OperatorSetIdProto import;
    import.set_domain(std::string(kContrib));
    import.set_version(1);
    ModelText& text = edits_.added[{&proto, onnx::ModelProto::kOpsetImportFieldNumber}];
    const ModelText::Mark begin = text.here();
    append_message(import, text);
    text.wrap(begin, onnx::ModelProto::kOpsetImportFieldNumber);
  }

  const Model& model_;
  const MatrixPlan& plan_;
  ModelEdits& edits_;
  FreshNames names_;
  std::vector<GraphNode> graphs_;
  std::optional<KeptNodes> kept_;
  std::vector<NameSet> gone_;  // of each graph: values that are no more
  std::unordered_set<const onnx::NodeProto*> views_;
  std::unordered_set<const onnx::TensorProto*> constants_;  // of Constant nodes that go
};

}  // namespace

Status replace_matrices(const Model& model, const MatrixPlan& plan, ModelEdits& edits) {
  return MatrixReplacer(model, plan, edits).replace();
}

}  // namespace onnx_external
