// Builds small ONNX models for tests. Each call adds one part:
//
//   GraphBuilder b;
//   b.input("x", kFloat, {1, 4}).input("w", kFloat, {4, 4}).node("MatMul", {"x", "w"}, {"y"});
//   b.output("y", kFloat, {1, 4});
//   onnx::ModelProto model = b.model();
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/quantize.h"  // before kFloat: g++ warns if HeadWeights::kFloat comes later

namespace onnx_external {

inline constexpr std::int32_t kFloat = onnx::TensorProto::FLOAT;
inline constexpr std::int32_t kInt64 = onnx::TensorProto::INT64;

// Stands for a symbolic dimension "N" in the shapes of tests.
inline constexpr std::int64_t kAnySize = -1;

class GraphBuilder {
 public:
  explicit GraphBuilder(std::int64_t ir_version = 8) {
    model_.set_ir_version(ir_version);
    model_.set_producer_name("graph_builder");
    model_.add_opset_import()->set_version(17);
    model_.mutable_graph()->set_name("main");
    graph_ = model_.mutable_graph();
  }
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  GraphBuilder& input(const std::string& name, std::int32_t type,
                      const std::vector<std::int64_t>& shape) {
    describe(graph_->add_input(), name, type, shape);
    return *this;
  }
  GraphBuilder& output(const std::string& name, std::int32_t type,
                       const std::vector<std::int64_t>& shape) {
    describe(graph_->add_output(), name, type, shape);
    return *this;
  }
  GraphBuilder& value_info(const std::string& name, std::int32_t type,
                           const std::vector<std::int64_t>& shape) {
    describe(graph_->add_value_info(), name, type, shape);
    return *this;
  }

  // Adds a node named "<op>_<number>".
  GraphBuilder& node(const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs) {
    last_ = graph_->add_node();
    last_->set_op_type(op);
    last_->set_name(op + "_" + std::to_string(node_count_++));
    for (const std::string& name : inputs) {
      last_->add_input(name);
    }
    for (const std::string& name : outputs) {
      last_->add_output(name);
    }
    return *this;
  }

  // Adds an initializer with `bytes` as raw data. If `bytes` is empty, the initializer has no data.
  GraphBuilder& initializer(const std::string& name, std::int32_t type,
                            const std::vector<std::int64_t>& dims, const std::string& bytes) {
    onnx::TensorProto* tensor = add_tensor(name, type, dims);
    if (!bytes.empty()) {
      tensor->set_raw_data(bytes);
    }
    return *this;
  }

  // Adds an initializer in an external file. The entries are written as given, whether true or not.
  GraphBuilder& external(const std::string& name, std::int32_t type,
                         const std::vector<std::int64_t>& dims,
                         const std::vector<std::pair<std::string, std::string>>& entries) {
    onnx::TensorProto* tensor = add_tensor(name, type, dims);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return *this;
  }

  // Begins a new subgraph of the last node. Everything up to end_subgraph() is added to this
  // subgraph.
  GraphBuilder& begin_subgraph(const std::string& attribute) {
    onnx::AttributeProto* holder = last_->add_attribute();
    holder->set_name(attribute);
    holder->set_type(onnx::AttributeProto::GRAPH);
    parents_.emplace_back(graph_, last_);
    graph_ = holder->mutable_g();
    graph_->set_name(attribute);
    return *this;
  }
  GraphBuilder& end_subgraph() {
    graph_ = parents_.back().first;
    last_ = parents_.back().second;
    parents_.pop_back();
    return *this;
  }

  [[nodiscard]] onnx::ModelProto& model() { return model_; }
  [[nodiscard]] std::string bytes() const { return model_.SerializeAsString(); }

 private:
  static void describe(onnx::ValueInfoProto* value, const std::string& name, std::int32_t type,
                       const std::vector<std::int64_t>& shape) {
    value->set_name(name);
    auto* tensor_type = value->mutable_type()->mutable_tensor_type();
    tensor_type->set_elem_type(type);
    tensor_type->mutable_shape();
    for (const std::int64_t dim : shape) {
      auto* added = tensor_type->mutable_shape()->add_dim();
      if (dim == kAnySize) {
        added->set_dim_param("N");
      } else {
        added->set_dim_value(dim);
      }
    }
  }
  onnx::TensorProto* add_tensor(const std::string& name, std::int32_t type,
                                const std::vector<std::int64_t>& dims) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (const std::int64_t dim : dims) {
      tensor->add_dims(dim);
    }
    return tensor;
  }

  onnx::ModelProto model_;
  onnx::GraphProto* graph_ = nullptr;
  onnx::NodeProto* last_ = nullptr;
  std::vector<std::pair<onnx::GraphProto*, onnx::NodeProto*>> parents_;
  std::size_t node_count_ = 0;
};

}  // namespace onnx_external
