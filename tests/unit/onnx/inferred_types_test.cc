#include "onnx/inferred_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::int32_t kFloat = onnx::TensorProto::FLOAT;

SymbolicShape dims(std::initializer_list<std::optional<std::int64_t>> list) {
  return list;
}

// The protobuf classes may be older than the field.
template <typename Node>
void add_entry(Node& node, const onnx::StringStringEntryProto& entry, int field) {
  if constexpr (requires { node.add_metadata_props(); }) {
    *node.add_metadata_props() = entry;
  } else {
    node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(
        field, entry.SerializeAsString());
  }
}

// A graph of nodes; names that no node makes and that are not stated are open.
class GraphCase {
 public:
  GraphCase& add(const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& output) {
    onnx::NodeProto& node = nodes_.emplace_back();
    node.set_op_type(op);
    for (const std::string& input : inputs) {
      node.add_input(input);
    }
    node.add_output(output);
    return *this;
  }
  // Of the node that was added last.
  GraphCase& attribute(const std::string& name, const std::vector<std::int64_t>& numbers) {
    onnx::AttributeProto& added = *nodes_.back().add_attribute();
    added.set_name(name);
    added.set_i(numbers.front());
    for (const std::int64_t number : numbers) {
      added.add_ints(number);
    }
    return *this;
  }
  GraphCase& text(const std::string& name, const std::string& value) {
    onnx::AttributeProto& added = *nodes_.back().add_attribute();
    added.set_name(name);
    added.set_s(value);
    return *this;
  }
  GraphCase& mark(const std::string& key, const std::string& value) {
    onnx::StringStringEntryProto entry;
    entry.set_key("pkg.torch.onnx." + key);
    entry.set_value(value);
    constexpr int kNodeMetadata = 9;
    add_entry(nodes_.back(), entry, kNodeMetadata);
    return *this;
  }
  GraphCase& domain(const std::string& name) {
    nodes_.back().set_domain(name);
    return *this;
  }
  GraphCase& numbers(const std::string& name, const std::vector<std::int64_t>& values) {
    return add("Constant", {}, name).attribute("value_ints", values);
  }
  GraphCase& slice(const std::string& data, std::int64_t start, std::int64_t end,
                   const std::string& output) {
    numbers(output + "_start", {start}).numbers(output + "_end", {end});
    numbers(output + "_axis", {0});
    return add("Slice", {data, output + "_start", output + "_end", output + "_axis"}, output);
  }
  GraphCase& value(const std::string& name, const SymbolicShape& shape) {
    stated_[name] = shape;
    return *this;
  }
  [[nodiscard]] ValueType infer(const std::string& name) {
    for (const onnx::NodeProto& node : nodes_) {
      for (const std::string& input : node.input()) {
        inputs_.push_back(id(input));
      }
      for (const std::string& output : node.output()) {
        outputs_.push_back(id(output));
      }
    }
    std::vector<NodeValues> nodes;
    std::size_t input = 0;
    std::size_t output = 0;
    for (const onnx::NodeProto& node : nodes_) {
      const auto count = static_cast<std::size_t>(node.input_size());
      nodes.push_back({&node, std::span(inputs_).subspan(input, count),
                       std::span(outputs_).subspan(output++, 1)});
      input += count;
    }
    const ValueId wanted = id(name);
    std::vector<ValueType> forms(ids_.size());
    for (const auto& [each, place] : ids_) {
      const auto stated = stated_.find(each);
      forms[place].is_open = stated == stated_.end();
      if (stated != stated_.end()) {
        forms[place].elem_type = kFloat;
        forms[place].shape = stated->second;
      }
    }
    infer_types(nodes, forms);
    return forms[wanted];
  }

 private:
  ValueId id(const std::string& name) {
    return name.empty() ? kNoValue
                        : ids_.emplace(name, static_cast<ValueId>(ids_.size())).first->second;
  }
  std::deque<onnx::NodeProto> nodes_;
  std::map<std::string, SymbolicShape> stated_;
  std::map<std::string, ValueId> ids_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
};

TEST(InferredTypes, ATransposeDeterminesTheWholeShape) {
  const auto form = GraphCase().add("Transpose", {"w"}, "y").value("y", {2, 3}).infer("w");
  EXPECT_EQ(form.elem_type, kFloat);
  EXPECT_EQ(form.shape, dims({3, 2}));
  const auto turned = GraphCase()
                          .add("Transpose", {"w"}, "y")
                          .attribute("perm", {2, 0, 1})
                          .value("y", {2, 3, 4})
                          .infer("w");
  EXPECT_EQ(turned.shape, dims({3, 4, 2}));
  const auto wrong = GraphCase()
                         .add("Transpose", {"w"}, "y")
                         .attribute("perm", {2, 0, 9})
                         .value("y", {2, 3, 4})
                         .infer("w");
  EXPECT_EQ(wrong.shape, std::nullopt);
}

TEST(InferredTypes, AGatherDeterminesAllButTheRows) {
  GraphCase c;
  c.add("Gather", {"w", "ids"}, "y").value("y", {std::nullopt, 7, 16});
  c.value("ids", {std::nullopt, 7});
  EXPECT_EQ(c.infer("w").shape, dims({std::nullopt, 16}));
}

TEST(InferredTypes, WeightsOfGemmConvAndNormsHaveTheirChannels) {
  GraphCase gemm;
  gemm.add("Gemm", {"x", "w", "b"}, "y").attribute("transB", {1});
  gemm.value("x", {5, 4}).value("y", {5, 3});
  EXPECT_EQ(gemm.infer("w").shape, dims({3, 4}));
  EXPECT_EQ(gemm.infer("b").broadcast_limit, dims({5, 3}));
  GraphCase conv;
  conv.add("Conv", {"x", "w", "b"}, "y").attribute("kernel_shape", {3, 3});
  conv.value("x", {1, 6, 7, 7}).value("y", {1, 8, 5, 5});
  EXPECT_EQ(conv.infer("w").shape, dims({8, 6, 3, 3}));
  EXPECT_EQ(conv.infer("b").shape, dims({8}));
  GraphCase norm;
  norm.add("LayerNormalization", {"x", "w", "b"}, "y").value("x", {2, 7, 16});
  EXPECT_EQ(norm.infer("w").shape, dims({16}));
  GraphCase batch;
  batch.add("BatchNormalization", {"x", "w", "b", "m", "v"}, "y").value("x", {2, 8, 5});
  EXPECT_EQ(batch.infer("m").shape, dims({8}));
}

TEST(InferredTypes, ATransposedConvolutionHasItsChannelsTheOtherWayAround) {
  GraphCase conv;
  conv.add("ConvTranspose", {"x", "w", "b"}, "y").attribute("group", {2});
  conv.value("x", {1, 6, 7}).value("y", {1, 8, 15});
  EXPECT_EQ(conv.infer("w").shape, dims({6, 4, std::nullopt}));
  EXPECT_EQ(conv.infer("b").shape, dims({8}));
}

TEST(InferredTypes, OperandsOfAddMustBroadcast) {
  const auto form = GraphCase().add("Add", {"x", "w"}, "y").value("y", {3, 6}).infer("w");
  EXPECT_EQ(form.shape, std::nullopt);
  EXPECT_EQ(form.broadcast_limit, dims({3, 6}));
}

TEST(InferredTypes, AnOperandOfTwoAddsMustBroadcastToBoth) {
  GraphCase c;
  c.add("Add", {"x", "w"}, "y").value("y", {3, 6}).add("Mul", {"z", "w"}, "v").value("v", {6});
  EXPECT_EQ(c.infer("w").broadcast_limit, dims({6}));
}

TEST(InferredTypes, OtherDomainsAndUnstatedFormsDetermineNothing) {
  EXPECT_EQ(GraphCase().add("Transpose", {"w"}, "y").infer("w").shape, std::nullopt);
  GraphCase c;
  c.add("Transpose", {"w"}, "y").value("y", {2, 3}).domain("com.example");
  const ValueType form = c.infer("w");
  EXPECT_EQ(form.elem_type, 0);
  EXPECT_EQ(form.shape, std::nullopt);
}

TEST(InferredTypes, AMatrixBehindATransposeMeetsTheDataAndTheProduct) {
  GraphCase c;
  c.add("Transpose", {"w"}, "t").attribute("perm", {1, 0}).add("MatMul", {"x", "t"}, "y");
  c.value("x", {2, 4, 6}).value("y", {2, 4, 3});
  const ValueType form = c.infer("w");
  EXPECT_EQ(form.elem_type, kFloat);
  EXPECT_EQ(form.shape, dims({3, 6}));
}

TEST(InferredTypes, AMatrixOfUnknownRankIsBoundByTheData) {
  GraphCase c;
  c.add("MatMul", {"x", "w"}, "y").value("x", {2, 4, 6}).value("y", {2, 4, 3});
  EXPECT_EQ(c.infer("w").broadcast_limit, dims({2, 6, 3}));
  GraphCase flat;
  flat.add("MatMul", {"x", "w"}, "y").value("x", {4, 6}).value("y", {4, 3});
  EXPECT_EQ(flat.infer("w").shape, dims({6, 3}));
}

TEST(InferredTypes, TheRowsOfAMatrixAreTheColumnsOfTheDataIfTheProductIsUnknown) {
  GraphCase c;
  c.add("MatMul", {"x", "w"}, "y").add("Add", {"y", "bias"}, "z");
  c.value("x", {2, 6}).value("z", {2, 3});
  const auto limit = c.infer("w").broadcast_limit;
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ((*limit)[limit->size() - 2], 6);
  EXPECT_EQ(limit->back(), std::nullopt);
}

// The way torch.onnx.export(dynamo=True, optimize=False) puts the gates of an LSTM in ONNX's order.
GraphCase lstm_of_slices() {
  GraphCase c;
  for (const std::string name : {"w", "r"}) {
    c.slice(name, 0, 5, name + "i").slice(name, 5, 10, name + "f");
    c.slice(name, 10, 15, name + "g").slice(name, 15, 20, name + "o");
    c.add("Concat", {name + "i", name + "o", name + "f", name + "g"}, name + "_gates");
    c.attribute("axis", {0});
  }
  c.numbers("zero", {0});
  c.add("Unsqueeze", {"w_gates", "zero"}, "W").add("Unsqueeze", {"r_gates", "zero"}, "R");
  c.add("LSTM", {"x", "W", "R"}, "y").attribute("hidden_size", {5}).text("direction", "forward");
  return c.value("x", {4, 2, 6});
}

TEST(InferredTypes, TheGatesOfAnLstmDetermineTypeAndShapeOfItsWeights) {
  const ValueType w = lstm_of_slices().infer("w");
  EXPECT_EQ(w.elem_type, kFloat);
  EXPECT_EQ(w.shape, dims({20, 6}));
  EXPECT_EQ(lstm_of_slices().infer("r").shape, dims({20, 5}));
}

TEST(InferredTypes, WeightsOfRecurrentOperatorsHaveTheirGates) {
  GraphCase gru;
  gru.add("GRU", {"x", "w", "r", "b"}, "y").attribute("hidden_size", {5});
  gru.text("direction", "bidirectional").value("x", {4, 2, 6});
  EXPECT_EQ(gru.infer("w").shape, dims({2, 15, 6}));
  EXPECT_EQ(gru.infer("r").shape, dims({2, 15, 5}));
  EXPECT_EQ(gru.infer("b").shape, dims({2, 30}));
  EXPECT_EQ(gru.infer("b").elem_type, kFloat);
}

TEST(InferredTypes, SlicesWithAGapDetermineNothingOfTheWhole) {
  GraphCase c;
  c.slice("w", 0, 2, "a").slice("w", 3, 5, "b").add("Concat", {"a", "b"}, "y");
  c.attribute("axis", {0}).value("y", {4, 6});
  EXPECT_EQ(c.infer("w").shape, dims({std::nullopt, 6}));
}

TEST(InferredTypes, TypesGoForwardsAndBackThroughManyNodes) {
  GraphCase c;
  std::string last = "w";
  for (int i = 0; i < 100; ++i) {
    const std::string next = "v" + std::to_string(i);
    c.add("Identity", {last}, next);
    last = next;
  }
  c.add("Add", {"x", last}, "y").value("x", {2});
  EXPECT_EQ(c.infer("w").elem_type, kFloat);
}

TEST(InferredTypes, ACastCutsTheTypes) {
  GraphCase c;
  c.add("Cast", {"w"}, "c").attribute("to", {kFloat}).add("Add", {"x", "c"}, "y");
  c.value("x", {2, 3}).value("y", {2, 3});
  EXPECT_EQ(c.infer("w").elem_type, 0);
}

TEST(InferredTypes, AConditionIsBoolean) {
  GraphCase c;
  c.add("Not", {"mask"}, "m").add("Where", {"m", "a", "x"}, "y").value("x", {2});
  EXPECT_EQ(c.infer("mask").elem_type, onnx::TensorProto::BOOL);
  EXPECT_EQ(c.infer("a").elem_type, kFloat);
}

TEST(InferredTypes, AShapeOfSeveralConstantsDeterminesTheResultOfAReshape) {
  GraphCase c;
  c.numbers("a", {2}).numbers("b", {3}).add("Mul", {"a", "b"}, "ab").numbers("rest", {4});
  c.add("Concat", {"ab", "rest"}, "shape").attribute("axis", {0});
  c.add("Reshape", {"x", "shape"}, "r").add("MatMul", {"r", "w"}, "y").value("y", {6, 5});
  EXPECT_EQ(c.infer("w").shape, dims({4, 5}));
}

GraphCase linear(const std::string& module_class) {
  GraphCase c;
  c.add("Transpose", {"w"}, "t").attribute("perm", {1, 0}).add("MatMul", {"x", "t"}, "p");
  c.add("Add", {"p", "b"}, "y").value("x", {2, 4, 6}).value("y", {2, 4, 3});
  c.mark("class_hierarchy", "['Net', '" + module_class + "', 'aten.linear.default']");
  return c.mark("fx_node", "%linear : call_function[target=torch.ops.aten.linear.default](args)");
}

TEST(InferredTypes, ALinearLayerOfTorchHasABiasOfOneDimension) {
  EXPECT_EQ(linear("torch.nn.modules.linear.Linear").infer("b").shape, dims({3}));
  EXPECT_EQ(linear("torch.nn.modules.linear.Linear").infer("w").shape, dims({3, 6}));
  EXPECT_EQ(linear("mine.Linear").infer("b").shape, std::nullopt);
}

TEST(InferredTypes, TheSlopesOfTorchHaveOneDimension) {
  GraphCase c;
  c.numbers("shape", {-1, 1}).add("Reshape", {"w", "shape"}, "slope");
  c.mark("fx_node", "%prelu : call_function[target=torch.ops.aten.prelu.default](args)");
  c.add("PRelu", {"x", "slope"}, "y").value("x", {2, 4, 8});
  EXPECT_EQ(c.infer("w").broadcast_limit, dims({std::nullopt}));
}

TEST(InferredTypes, AnEmbeddingOfTorchHasTwoDimensions) {
  GraphCase c;
  c.add("Gather", {"w", "ids"}, "y").value("y", {1, 4, 6});
  EXPECT_EQ(c.infer("w").shape, std::nullopt);  // nothing states the shape of ids
  c.mark("fx_node", "%e : call_function[target=torch.ops.aten.embedding.default](args)");
  EXPECT_EQ(c.infer("w").shape, dims({std::nullopt, 6}));
}

TEST(InferredTypes, NeverReplaceAStatedShape) {
  GraphCase c;
  c.add("Transpose", {"w"}, "y").attribute("perm", {1, 0});
  c.value("w", {5, 5}).value("y", {2, 3});
  EXPECT_EQ(c.infer("w").shape, dims({5, 5}));
}

TEST(InferredTypes, LongShapesAreNotInferred) {
  GraphCase c;
  c.add("Identity", {"w"}, "y").value("y", SymbolicShape(kMaxInferredRank + 1, 1));
  EXPECT_EQ(c.infer("w").shape, std::nullopt);
  EXPECT_EQ(c.infer("w").elem_type, kFloat);
}

}  // namespace
}  // namespace onnx_external
