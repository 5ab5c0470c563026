// Builds graphs of matrix products for tests, with the attributes of their nodes.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "onnx/matrix_choice.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"

namespace onnx_external {

class MatrixGraph {
 public:
  // Adds a weight whose data is in another file, so that a large weight takes no memory.
  MatrixGraph& weight(const std::string& name, const std::vector<std::int64_t>& dims,
                      std::int32_t type = onnx::TensorProto::FLOAT) {
    builder_.external(name, type, dims, {{"location", "weights"}});
    return *this;
  }
  MatrixGraph& integers(const std::string& name, const std::vector<std::int64_t>& numbers) {
    const auto* bytes = reinterpret_cast<const char*>(numbers.data());
    builder_.initializer(name, kInt64, {static_cast<std::int64_t>(numbers.size())},
                         std::string(bytes, numbers.size() * sizeof(std::int64_t)));
    return *this;
  }
  // Adds a node to the main graph.
  MatrixGraph& node(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) {
    builder_.node(op, inputs, outputs);
    return *this;
  }
  // Adds an attribute to the last node of the main graph.
  MatrixGraph& with(const std::string& name, std::int64_t value) {
    add_attribute(name, onnx::AttributeProto::INT).set_i(value);
    return *this;
  }
  MatrixGraph& with(const std::string& name, float value) {
    add_attribute(name, onnx::AttributeProto::FLOAT).set_f(value);
    return *this;
  }
  MatrixGraph& with(const std::string& name, const std::vector<std::int64_t>& values) {
    add_attribute(name, onnx::AttributeProto::INTS)
        .mutable_ints()
        ->Assign(values.begin(), values.end());
    return *this;
  }

  [[nodiscard]] GraphBuilder& builder() { return builder_; }
  [[nodiscard]] onnx::GraphProto& graph() { return *builder_.model().mutable_graph(); }
  [[nodiscard]] Model model() { return *Model::from_proto(builder_.model(), {}); }

 private:
  onnx::AttributeProto& add_attribute(const std::string& name,
                                      onnx::AttributeProto::AttributeType type) {
    auto& node = *graph().mutable_node(graph().node_size() - 1);
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }

  GraphBuilder builder_;
};

// Plans the matrices of a model for a save that stores nothing else in the model.
inline Result<MatrixPlan> plan_matrices(const Model& model, const QuantizeOptions& options) {
  TRY_ASSIGN(auto weights, find_matrices(model, {}));
  return choose_matrices(model, std::move(weights), options);
}

}  // namespace onnx_external
