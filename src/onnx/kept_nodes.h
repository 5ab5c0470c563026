// Makes the nodes around a product, or a lookup, of codes that a checkpoint's quantizer chose: they
// bring the inputs into the order of the codes, and add the terms of blocks.
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

// Nodes that read the same input are put before the first node that needs them, and shared.
class KeptNodes {
 public:
  // Puts a node before another one, whose inputs it may read, and returns the name of its output.
  using PutBefore = std::function<std::string(onnx::NodeProto, const onnx::NodeProto&)>;

  KeptNodes(const MatrixPlan& plan, const std::vector<GraphNode>& graphs, PutBefore put_before);

  // The input of the product: multiplied by factors and reordered if the matrix asks for it.
  [[nodiscard]] std::string input_of(const ChosenMatrix& chosen, const MatrixUse& use);
  // The sums of the blocks of that input, multiplied by the terms. Requires: the scheme has terms.
  [[nodiscard]] std::string terms_of(const ChosenMatrix& chosen, const MatrixUse& use);
  // Adds the terms to the rows that a lookup found; `rows` is the name of these. Returns the last
  // node, which has no name and no output yet.
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
