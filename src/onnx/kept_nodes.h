// Makes the nodes that are needed around a matrix product or a Gather if a save keeps the codes of
// a quantized checkpoint: nodes that reorder the inputs to match the codes, and nodes that add the
// terms (offsets) of blocks.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "onnx/graph_list.h"
#include "onnx/matrix_choice.h"

namespace onnx_external {

// Nodes that read the same input are shared, and are inserted before the first node that needs
// them.
class KeptNodes {
 public:
  // Inserts a node before another node, whose inputs it may read, and returns the name of its
  // output.
  using PutBefore = std::function<std::string(onnx::NodeProto, const onnx::NodeProto&)>;

  KeptNodes(const MatrixPlan& plan, const std::vector<GraphNode>& graphs, PutBefore put_before);

  // Returns the input of the product, multiplied by factors and reordered if the matrix requires
  // it.
  [[nodiscard]] std::string input_of(const ChosenMatrix& chosen, const MatrixUse& use);
  // Returns the sums of the blocks of that input, multiplied by the terms. Requires: the scheme has
  // terms.
  [[nodiscard]] std::string terms_of(const ChosenMatrix& chosen, const MatrixUse& use);
  // Adds the terms to the rows that a Gather returned under the name `rows`. Returns the last node,
  // to which the caller gives a name and an output.
  [[nodiscard]] onnx::NodeProto add_to_rows(const ChosenMatrix& chosen, const MatrixUse& use,
                                            const std::string& rows);

 private:
  using InputKey = std::tuple<std::uint32_t, std::string, KeptInputs>;
  using SumsKey = std::tuple<std::uint32_t, std::string, std::uint32_t>;

  void note_first(std::tuple<std::uint32_t, std::string> input, const onnx::NodeProto* node);
  [[nodiscard]] const onnx::NodeProto& first_reader(const MatrixUse& use) const;
  [[nodiscard]] std::string constant(const std::vector<std::int64_t>& values,
                                     const onnx::NodeProto& before);

  PutBefore put_before_;
  std::unordered_map<const onnx::NodeProto*, std::size_t> places_;
  std::map<std::tuple<std::uint32_t, std::string>, const onnx::NodeProto*> first_;
  std::map<InputKey, std::string> inputs_;
  std::map<SumsKey, std::string> sums_;
};

}  // namespace onnx_external
