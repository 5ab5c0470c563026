// What the names in a model's graphs stand for: nothing, or an initializer behind Identity nodes.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// Immutable; independent of the model once made.
class GraphNames {
 public:
  // kUnsupported past kMaxGraphDepth.
  [[nodiscard]] static Result<GraphNames> of(const onnx::ModelProto& model);
  GraphNames(GraphNames&&) = default;
  GraphNames& operator=(GraphNames&&) = default;

  // Names that no runtime can resolve: what nodes or outputs use and nothing defines, initializers
  // without data.
  [[nodiscard]] std::vector<Finding> open_slots() const;
  [[nodiscard]] bool is_open(std::uint32_t graph, std::string_view name) const;

  // The initializer, as (graph, name), that the graph has under this name through Identity nodes:
  // so exporters share equal weights. Nothing when the name is no output of such a node.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::string>> shared_initializer(
      std::uint32_t graph, std::string_view name) const;

 private:
  GraphNames() = default;
  [[nodiscard]] const Slot* find(std::uint32_t graph, std::string_view name) const;

  GraphFacts facts_;
  std::vector<std::uint32_t> parents_;                                       // of each graph
  std::map<std::pair<std::uint32_t, std::string_view>, const Slot*> slots_;  // into facts_
};

}  // namespace onnx_external
