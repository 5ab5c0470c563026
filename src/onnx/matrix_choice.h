// Chooses which matrices of a graph are quantized, and by which scheme.
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
  // The part of a quantized matrix that the initializer holds. PackedLayout has the bytes of each
  // part; its types and shapes may differ from those here. kTable has the bytes of kCodes in the
  // shape that an embedding needs, so that both can share a range of a file. kTerms has the values
  // of Scheme::terms.
  enum class Part : std::uint8_t { kCodes, kTable, kScales, kZeroPoints, kTerms };
  Part part = Part::kCodes;
  std::string name;
  std::int32_t data_type = 0;
  Shape dims;
};

// The changes to the input of a product if the matrix keeps the codes of the checkpoint.
struct KeptInputs {
  std::vector<float> factors = {};  // each column is multiplied by one of these; empty: no factors
  // The columns that the product then reads, in order; empty: all.
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

// Returns how a matrix keeps its codes; nullopt if the checkpoint stores it as floats. kUnsupported
// if no node can multiply by its codes: the message gives the reason, and the matrix is
// dequantized.
using KeepMatrix =
    std::function<Result<std::optional<KeptMatrix>>(const GraphWeight&, const Matrix&)>;

// A matrix that is quantized.
struct ChosenMatrix {
  std::size_t weight = 0;  // index into MatrixPlan::weights
  std::size_t matrix = 0;  // index into GraphWeight::matrices
  Scheme scheme;
  std::shared_ptr<const KeptInputs> inputs;  // set if the checkpoint's codes are kept
  std::string unkept;  // why the checkpoint's codes are not kept; "" if they are, or there are none
  std::vector<MatrixTensor> tensors;  // two to four, in the order of Part
  // The index of the pattern in QuantizeOptions::weights that gives the scheme, if one does.
  std::optional<std::size_t> pattern;

  // Returns the name of a part's initializer; "" if the matrix has no such part.
  [[nodiscard]] std::string_view name_of(MatrixTensor::Part part) const;
};

// The decision for each weight of a graph. A weight whose reason is not FloatReason::kNone is not
// quantized. All matrices of any other weight are chosen, and replace_matrices() removes the weight
// from the model.
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

// Decides which weights are quantized: sets the reasons of those that stay unchanged, and chooses
// the schemes of the others. The new initializers are named after the weight, with ".codes",
// ".table", ".scales", ".zero_points" or ".terms" appended, after a number if the weight has
// several matrices; the names differ from all names in the model. kUnsupported if the form needs a
// newer opset. If the options keep codes, `keep` is called, and its errors other than kUnsupported
// are returned. A pure function. Requires: check_options(options) succeeds; the weights were
// returned by find_matrices(model, ...).
[[nodiscard]] Result<MatrixPlan> choose_matrices(const Model& model,
                                                 std::vector<GraphWeight> weights,
                                                 const QuantizeOptions& options,
                                                 const KeepMatrix& keep = {});

// Fails with kNotFound, and names them, if patterns in QuantizeOptions::weights decide the scheme
// of no matrix in any of the models.
[[nodiscard]] Status check_patterns(const QuantizeOptions& options,
                                    std::span<const MatrixPlan* const> plans);

// Returns names that are not used in the model and were not returned by an earlier call.
class FreshNames {
 public:
  explicit FreshNames(const GraphFacts& facts);
  // Returns the name itself, or the name with a number at its end.
  [[nodiscard]] std::string take(const std::string& wanted);

 private:
  OwnedNameSet taken_;
};

// Returns the error for a model, or a set of models, in which nothing can be quantized.
[[nodiscard]] tl::unexpected<Error> nothing_to_quantize(const QuantizeOptions& options);

// Returns whether the pattern matches the whole name: * for any characters, ? for one. The time is
// at most proportional to the product of both lengths.
[[nodiscard]] bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace onnx_external
