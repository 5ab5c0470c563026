// Chooses which matrices of a graph become codes, and by which scheme.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "onnx/matrix_uses.h"
#include "onnx_external/model.h"
#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// A new initializer of the main graph.
struct MatrixTensor {
  // The part of a quantized matrix that it holds: PackedLayout has the bytes of each, whatever its
  // type and shape here. kTable has those of kCodes in the shape that an embedding needs, so both
  // can share a range of a file.
  enum class Part : std::uint8_t { kCodes, kTable, kScales, kZeroPoints };
  Part part = Part::kCodes;
  std::string name;
  std::int32_t data_type = 0;
  Shape dims;
};

// A matrix that becomes codes.
struct ChosenMatrix {
  std::size_t weight = 0;  // index into MatrixPlan::weights
  std::size_t matrix = 0;  // index into GraphWeight::matrices
  Scheme scheme;
  std::vector<MatrixTensor> tensors;  // two to four, in the order of their parts

  // "" if it has no such part.
  [[nodiscard]] std::string_view name_of(MatrixTensor::Part part) const;
};

// What happens to each weight of a graph. A weight with a reason keeps its floats. All matrices of
// any other are chosen, and the model that replace_matrices() makes has the weight no more.
struct MatrixPlan {
  std::vector<GraphWeight> weights;
  std::vector<ChosenMatrix> matrices;  // in the order of the weights
  // inline_tensors() that only the nodes read that replace_matrices() removes.
  std::vector<std::size_t> unread_inline;
  QuantizeOptions options;

  [[nodiscard]] const Matrix& matrix_of(const ChosenMatrix& chosen) const {
    return weights[chosen.weight].matrices[chosen.matrix];
  }
};

// Sets the reasons of weights that stay as they are, and returns the others' schemes. Names of
// tensors are the weight's name with ".codes", ".table", ".scales" and ".zero_points", after a
// number if the weight has several matrices, and unlike all names of the model. kUnsupported if the
// form needs a newer opset. A pure function.
// Requires: check_options(options) succeeds; the weights are find_matrices(model, ...).
[[nodiscard]] Result<MatrixPlan> choose_matrices(const Model& model,
                                                 std::vector<GraphWeight> weights,
                                                 const QuantizeOptions& options);

// find_matrices() and choose_matrices(). kUnsupported if the form needs a newer opset, or if
// nothing is left to quantize.
[[nodiscard]] Result<MatrixPlan> plan_matrices(const Model& model,
                                               std::span<const std::optional<StoredSlot>> stored,
                                               const QuantizeOptions& options,
                                               MatchedInputs inputs = MatchedInputs::kRemove);

// Gives names that neither the model nor an earlier call has.
class FreshNames {
 public:
  explicit FreshNames(const GraphFacts& facts);
  // The name itself, or with a number at its end.
  [[nodiscard]] std::string take(const std::string& wanted);

 private:
  OwnedNameSet taken_;
};

// The error of a model, or of a set, in which nothing becomes codes.
[[nodiscard]] tl::unexpected<Error> nothing_to_quantize(const QuantizeOptions& options);

// Whether the pattern stands for the whole name: * for any characters, ? for one. Takes at most
// time proportional to both lengths.
[[nodiscard]] bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace onnx_external
