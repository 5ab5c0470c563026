// Resolves names in a model's graphs for the verifier: finds names that nothing defines, and the
// initializers that are read through Identity nodes.
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

// Immutable; independent of the model after construction.
class GraphNames {
 public:
  // kUnsupported beyond kMaxGraphDepth.
  [[nodiscard]] static Result<GraphNames> of(const onnx::ModelProto& model);
  GraphNames(GraphNames&&) = default;
  GraphNames& operator=(GraphNames&&) = default;

  // Reports values that no runtime can resolve: undefined names that nodes or outputs use, and
  // tensors without data. `model` is the argument of of(), and `tensors` are its tensors.
  [[nodiscard]] std::vector<Finding> open_slots(const onnx::ModelProto& model,
                                                std::span<const ListedTensor> tensors) const;
  [[nodiscard]] bool is_open(std::uint32_t graph, std::string_view name) const;

  // Returns the initializer, as (graph, name), to which this name refers through Identity nodes;
  // exporters use these to share equal weights. Nullopt if the name is not the output of such a
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
