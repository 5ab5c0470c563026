// Chooses the matrices of a graph that are quantized, and the scheme for each.
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

// A new initializer in the main graph.
struct MatrixTensor {
  // The part of a quantized matrix that the initializer holds. The bytes of each part are described
  // by PackedLayout, whose types and shapes may differ from those here. kTable has the same bytes
  // as kCodes in the shape that an embedding needs, so that both can share a range of a file.
  // kTerms has the values of Scheme::terms.
  enum class Part : std::uint8_t { kCodes, kTable, kScales, kZeroPoints, kTerms };
  Part part = Part::kCodes;
  std::string name;
  std::int32_t data_type = 0;
  Shape dims;
};

// The changes to the input of a product if the matrix keeps the codes of the checkpoint.
struct KeptInputs {
  std::vector<float> factors = {};  // one factor per column; empty = no factors
  // The indices of the columns that the product then reads, in order; empty = all columns in their
  // order.
  std::vector<std::int32_t> order = {};

  [[nodiscard]] bool empty() const { return factors.empty() && order.empty(); }
  friend bool operator==(const KeptInputs&, const KeptInputs&) = default;
  friend auto operator<=>(const KeptInputs&, const KeptInputs&) = default;
};

// The form in which a matrix keeps the codes of the checkpoint.
struct KeptMatrix {
  Scheme scheme;
  std::shared_ptr<const KeptInputs> inputs;  // not null
};

// Returns the form in which a matrix keeps its codes, or nullopt if the checkpoint stores the
// matrix as floats. Fails with kUnsupported if no node can multiply by the codes; the message
// states the reason, and the matrix is dequantized.
using KeepMatrix =
    std::function<Result<std::optional<KeptMatrix>>(const GraphWeight&, const Matrix&)>;

// A matrix that is quantized.
struct ChosenMatrix {
  std::size_t weight = 0;  // index into MatrixPlan::weights
  std::size_t matrix = 0;  // index into GraphWeight::matrices
  Scheme scheme;
  std::shared_ptr<const KeptInputs> inputs;  // set if the checkpoint's codes are kept
  std::string unkept;  // reason why codes of the checkpoint are not kept; otherwise ""
  std::vector<MatrixTensor> tensors;  // two to four, in the order of Part
  // The index of the pattern in QuantizeOptions::weights whose scheme is used, if there is one.
  std::optional<std::size_t> pattern;

  // Returns the name of a part's initializer, or "" if the matrix has no such part.
  [[nodiscard]] std::string_view name_of(MatrixTensor::Part part) const;
};

// The decisions for all weights of a graph. A weight whose reason is FloatReason::kNone is
// quantized: all of its matrices are chosen, and replace_matrices() removes the weight from the
// model. Any other weight is not quantized.
struct MatrixPlan {
  std::vector<GraphWeight> weights;
  std::vector<ChosenMatrix> matrices;  // in the order of the weights
  // The inline_tensors() that are read only by nodes that replace_matrices() removes.
  std::vector<std::size_t> unread_inline;
  QuantizeOptions options;

  [[nodiscard]] const Matrix& matrix_of(const ChosenMatrix& chosen) const {
    return weights[chosen.weight].matrices[chosen.matrix];
  }
};

// Decides which weights are quantized. Sets the reason for each weight that stays unchanged, and
// chooses the schemes for the others. A new initializer has the name of the weight, followed by a
// number if the weight has several matrices, and by ".codes", ".table", ".scales", ".zero_points"
// or ".terms". The names differ from all names in the model. Fails with kUnsupported if the form
// needs a newer opset. If the options keep codes, `keep` is called, and its errors other than
// kUnsupported are returned. A pure function. Requires: check_options(options) succeeds; the
// weights were returned by find_matrices(model, ...).
[[nodiscard]] Result<MatrixPlan> choose_matrices(const Model& model,
                                                 std::vector<GraphWeight> weights,
                                                 const QuantizeOptions& options,
                                                 const KeepMatrix& keep = {});

// Fails with kNotFound if patterns in QuantizeOptions::weights are not used for any matrix of the
// models. The message lists these patterns.
[[nodiscard]] Status check_patterns(const QuantizeOptions& options,
                                    std::span<const MatrixPlan* const> plans);

// Generates names that are not used in the model.
class FreshNames {
 public:
  explicit FreshNames(const GraphFacts& facts);
  // Returns `wanted`, or, if this name is in use or was returned before, `wanted` with a number at
  // its end.
  [[nodiscard]] std::string take(const std::string& wanted);

 private:
  OwnedNameSet taken_;
};

// Returns the error for a model, or a set of models, in which nothing can be quantized.
[[nodiscard]] tl::unexpected<Error> nothing_to_quantize(const QuantizeOptions& options);

}  // namespace onnx_external
