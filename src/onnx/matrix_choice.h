// Chooses which matrices of a graph become codes, and by which scheme.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  // The part of a quantized matrix that it holds: PackedLayout has the bytes of each; its type and
  // shape here may differ. kTable has those of kCodes in the shape that an embedding needs, so both
  // can share a range of a file. kTerms has those of Scheme::terms.
  enum class Part : std::uint8_t { kCodes, kTable, kScales, kZeroPoints, kTerms };
  Part part = Part::kCodes;
  std::string name;
  std::int32_t data_type = 0;
  Shape dims;
};

// The changes to the inputs of a product whose codes are kept.
struct KeptInputs {
  std::vector<float> factors = {};       // each column is multiplied by one; empty: none
  std::vector<std::int32_t> order = {};  // then the columns that the product takes; empty: all

  [[nodiscard]] bool empty() const { return factors.empty() && order.empty(); }
  friend bool operator==(const KeptInputs&, const KeptInputs&) = default;
  friend auto operator<=>(const KeptInputs&, const KeptInputs&) = default;
};

// The form in which a matrix of the checkpoint's codes is kept.
struct KeptMatrix {
  Scheme scheme;
  std::shared_ptr<const KeptInputs> inputs;  // not null
};

// Says how a matrix is kept; nullopt if the checkpoint has it as floats. kUnsupported if no node
// multiplies by its codes: the message says why, and it becomes floats.
using KeepMatrix =
    std::function<Result<std::optional<KeptMatrix>>(const GraphWeight&, const Matrix&)>;

// A matrix that becomes codes.
struct ChosenMatrix {
  std::size_t weight = 0;  // index into MatrixPlan::weights
  std::size_t matrix = 0;  // index into GraphWeight::matrices
  Scheme scheme;
  std::shared_ptr<const KeptInputs> inputs;  // of kept codes
  std::string unkept;  // why the checkpoint's codes are not kept; "" if it has none, or they are
  std::vector<MatrixTensor> tensors;  // two to four, in the order of their parts

  // "" if it has no such part.
  [[nodiscard]] std::string_view name_of(MatrixTensor::Part part) const;
};

// The decision on each weight of a graph. A weight with another reason than
// FloatReason::kNone is not quantized. All matrices of any other weight are chosen, and the model
// that replace_matrices() makes no longer has that weight.
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

// Sets the reasons of weights that stay unchanged, and returns the others' schemes. Names of
// tensors are the weight's name with ".codes", ".table", ".scales", ".zero_points" and ".terms",
// after a number if the weight has several matrices, and unlike all names of the model.
// kUnsupported if the form needs a newer opset. `keep` is asked if the options keep codes; its
// errors other than kUnsupported are returned. A pure function. Requires: check_options(options)
// succeeds; the weights are find_matrices(model, ...).
[[nodiscard]] Result<MatrixPlan> choose_matrices(const Model& model,
                                                 std::vector<GraphWeight> weights,
                                                 const QuantizeOptions& options,
                                                 const KeepMatrix& keep = {});

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

// Returns whether the pattern matches the whole name: * for any characters, ? for one. Takes at
// most time proportional to both lengths.
[[nodiscard]] bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace onnx_external
