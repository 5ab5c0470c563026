// Lists the graph tensors, which are the tensors of a model that have data, inline or external, and
// reads their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/byte_stream.h"
#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A graph tensor. It points into the model, which must outlive this object and must not change.
struct GraphTensor {
  const ExternalTensor* external = nullptr;  // either `external` or `in_model` is set
  const InlineTensor* in_model = nullptr;
  std::size_t index = 0;  // into Model::external_tensors() or inline_tensors()

  [[nodiscard]] const std::string& name() const {
    return external != nullptr ? external->name : in_model->name;
  }
  [[nodiscard]] TensorPlace place() const {
    return external != nullptr ? external->place : in_model->place;
  }
  [[nodiscard]] std::uint32_t graph() const {
    return external != nullptr ? external->graph : in_model->graph;
  }
  [[nodiscard]] std::int32_t data_type() const {
    return external != nullptr ? external->data_type : in_model->data_type;
  }
  [[nodiscard]] const Shape& dims() const {
    return external != nullptr ? external->dims : in_model->dims;
  }
  // Returns the name for messages, which is the name of the initializer or of the output of the
  // Constant node.
  [[nodiscard]] std::string_view shown_name() const {
    const std::string_view own = name();
    constexpr std::string_view kValue = ".value";
    return place() == TensorPlace::kAttribute && own.ends_with(kValue)
               ? own.substr(0, own.size() - kValue.size())
               : own;
  }
  [[nodiscard]] std::uint64_t nbytes() const {
    return external != nullptr ? external->length : in_model->length;
  }
};

[[nodiscard]] std::vector<GraphTensor> graph_tensors(const Model& model);

// Returns a stream of the tensor's bytes, after opening its file if necessary. Fails if the file is
// missing or too short. `checkpoint` contains the graph's external data that is in memory.
[[nodiscard]] Result<ByteStream> graph_stream(const Model& model, const GraphTensor& tensor,
                                              const Checkpoint& checkpoint);

// Returns, for each slot, the index in `graph_tensors` of the graph's data for the slot. If the
// slot is the output of an Identity node, the data is that of the node's input. The index is
// nullopt if there is no data, or if several graphs define the name.
[[nodiscard]] std::vector<std::optional<std::uint32_t>> tensor_of_slots(
    const GraphFacts& graph, const std::vector<GraphTensor>& graph_tensors);

}  // namespace onnx_external
