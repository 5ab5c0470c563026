// Creates the nodes that a matrix product or a Gather needs in addition if a save keeps the codes
// of a quantized checkpoint. These nodes reorder the inputs to match the codes, and add the terms
// (offsets) of blocks.
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

// Products with the same input share these nodes, which are inserted before the first product.
class KeptNodes {
 public:
  // Inserts the first node before the second node, and returns the name of its output. The first
  // node may read inputs of the second.
  using PutBefore = std::function<std::string(onnx::NodeProto, const onnx::NodeProto&)>;

  KeptNodes(const MatrixPlan& plan, const std::vector<GraphNode>& graphs, PutBefore put_before);

  // Returns the name of the product's input, after multiplication by factors and reordering if the
  // matrix requires them.
  [[nodiscard]] std::string input_of(const ChosenMatrix& chosen, const MatrixUse& use);
  // Returns the name of a value that is to be added to the product: the sums of the blocks of its
  // input, multiplied by the terms. Requires: the scheme has terms.
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
