// Resolves names in a model's graphs for the verifier. Finds undefined names, and initializers that
// are read through Identity nodes.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx/tensor_list.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// The names in the graphs of a model. Immutable. It does not refer to the model after construction.
class GraphNames {
 public:
  // Collects the names. Fails with kUnsupported for graphs nested deeper than kMaxGraphDepth.
  [[nodiscard]] static Result<GraphNames> of(const onnx::ModelProto& model);
  GraphNames(GraphNames&&) = default;
  GraphNames& operator=(GraphNames&&) = default;

  // Returns findings for values that no runtime can resolve. These are undefined names that nodes
  // or outputs use, and tensors without data. `model` is the argument of of(), and `tensors` are
  // its tensors.
  [[nodiscard]] std::vector<Finding> open_slots(const onnx::ModelProto& model,
                                                std::span<const ListedTensor> tensors) const;
  [[nodiscard]] bool is_open(std::uint32_t graph, std::string_view name) const;

  // Returns the initializer, as (graph, name), to which a name refers through Identity nodes, by
  // which exporters share equal weights. Returns nullopt if the name is not the output of such a
  // node.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::string>> shared_initializer(
      std::uint32_t graph, std::string_view name) const;

 private:
  GraphNames() = default;
  [[nodiscard]] const Slot* find(std::uint32_t graph, std::string_view name) const;

  GraphFacts facts_;
  std::vector<std::uint32_t> parents_;                                       // for each graph
  std::map<std::pair<std::uint32_t, std::string_view>, const Slot*> slots_;  // pointers into facts_
};

}  // namespace onnx_external
