#include "onnx/inferred_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace onnx_external {
namespace {

constexpr std::int32_t kFloat = onnx::TensorProto::FLOAT;

// A node with its input "w" at one place, and the forms of the values around it.
struct NodeCase {
  onnx::NodeProto node;
  std::map<std::string, onnx::TypeProto> types;

  NodeCase(const std::string& op, const std::vector<std::string>& inputs) {
    node.set_op_type(op);
    for (const std::string& input : inputs) {
      node.add_input(input);
    }
    node.add_output("y");
  }
  NodeCase& value(const std::string& name, const std::vector<std::int64_t>& dims) {
    onnx::TypeProto::Tensor& tensor = *types[name].mutable_tensor_type();
    tensor.set_elem_type(kFloat);
    tensor.mutable_shape();
    for (const std::int64_t dim : dims) {
      onnx::TensorShapeProto::Dimension& added = *tensor.mutable_shape()->add_dim();
      if (dim >= 0) {
        added.set_dim_value(dim);
      }
    }
    return *this;
  }
  NodeCase& attribute(const std::string& name, const std::vector<std::int64_t>& numbers) {
    onnx::AttributeProto& added = *node.add_attribute();
    added.set_name(name);
    added.set_i(numbers.front());
    for (const std::int64_t number : numbers) {
      added.add_ints(number);
    }
    return *this;
  }
  [[nodiscard]] InferredForm infer(int input) const {
    return infer_input(node, input, [this](const std::string& name) -> const onnx::TypeProto* {
      const auto found = types.find(name);
      return found == types.end() ? nullptr : &found->second;
    });
  }
};

SymbolicShape dims(std::initializer_list<std::optional<std::int64_t>> list) {
  return list;
}

TEST(InferredForms, ATransposeTellsAll) {
  const auto form = NodeCase("Transpose", {"w"}).value("y", {2, 3}).infer(0);
  EXPECT_EQ(form.elem_type, kFloat);
  EXPECT_EQ(form.shape, dims({3, 2}));
  const auto turned =
      NodeCase("Transpose", {"w"}).attribute("perm", {2, 0, 1}).value("y", {2, 3, 4}).infer(0);
  EXPECT_EQ(turned.shape, dims({3, 4, 2}));
  EXPECT_EQ(NodeCase("Transpose", {"w"})
                .attribute("perm", {2, 0, 9})
                .value("y", {2, 3, 4})
                .infer(0)
                .shape,
            std::nullopt);
}

TEST(InferredForms, AGatherTellsAllButTheRows) {
  NodeCase c("Gather", {"w", "ids"});
  c.value("y", {-1, 7, 16}).value("ids", {-1, 7});
  EXPECT_EQ(c.infer(0).shape, dims({std::nullopt, 16}));
  EXPECT_EQ(c.infer(1).elem_type, 0);
}

TEST(InferredForms, WeightsOfGemmConvAndNormsHaveTheirChannels) {
  NodeCase gemm("Gemm", {"x", "w", "b"});
  gemm.attribute("transB", {1}).value("x", {5, 4}).value("y", {5, 3});
  EXPECT_EQ(gemm.infer(1).shape, dims({3, 4}));
  EXPECT_EQ(gemm.infer(2).bound, dims({5, 3}));
  NodeCase conv("Conv", {"x", "w", "b"});
  conv.attribute("kernel_shape", {3, 3}).value("y", {1, 8, 5, 5});
  EXPECT_EQ(conv.infer(1).shape, dims({8, std::nullopt, 3, 3}));
  EXPECT_EQ(conv.infer(2).shape, dims({8}));
  NodeCase norm("LayerNormalization", {"x", "w", "b"});
  norm.value("x", {2, 7, 16});
  EXPECT_EQ(norm.infer(1).shape, dims({16}));
  NodeCase batch("BatchNormalization", {"x", "w", "b", "m", "v"});
  batch.value("x", {2, 8, 5});
  EXPECT_EQ(batch.infer(3).shape, dims({8}));
}

TEST(InferredForms, WhatIsAddedMustBroadcast) {
  const auto form = NodeCase("Add", {"x", "w"}).value("y", {3, 6}).infer(1);
  EXPECT_EQ(form.shape, std::nullopt);
  EXPECT_EQ(form.bound, dims({3, 6}));
}

TEST(InferredForms, NothingIsToldByOtherDomainsOrWithoutStatedForms) {
  NodeCase c("Transpose", {"w"});
  EXPECT_EQ(c.infer(0).shape, std::nullopt);
  c.value("y", {2, 3}).node.set_domain("com.example");
  EXPECT_EQ(c.infer(0).elem_type, 0);
  EXPECT_EQ(c.infer(0).shape, std::nullopt);
}

}  // namespace
}  // namespace onnx_external
