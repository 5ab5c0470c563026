// Finds the matrices of a graph: float weights that MatMul, Gemm or Gather read, directly or
// through nodes that only move or convert elements, and says why every other weight is not one.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The tensor that a save stores for a slot: `recipe` applied to a tensor of `shape`, as ONNX data
// type `data_type`.
struct StoredSlot {
  std::int32_t data_type = 0;
  Shape shape;  // of the key
  Recipe recipe = {};
  std::string key = {};
};

enum class MatrixRole : std::uint8_t {
  kLinear,
  kHead,       // the product reaches an output of the graph, or an ArgMax or TopK over many columns
  kEmbedding,  // the rows of a Gather
  kRouter,     // the product reaches a TopK or ArgMax over at most kMaxRouted columns
};
// "linear", "head", "embedding", "router".
[[nodiscard]] std::string_view role_name(MatrixRole role);
inline constexpr std::int64_t kMaxRouted = 1024;

// A node that reads a matrix.
struct MatrixUse {
  const onnx::NodeProto* node = nullptr;
  std::uint32_t graph = 0;  // as in Slot::graph
  MatrixRole role = MatrixRole::kLinear;
  // For a Gemm: its C, and whether that has shape [N], as a bias of MatMulNBits must. "" = it has
  // none.
  std::string addend = {};
  bool addend_is_bias = false;
};

// The rows [n, k] that nodes read of a weight: n results of k products each. The rows of an
// embedding are its vectors.
struct Matrix {
  Recipe rows;  // from the weight's source to [n, k]; at most kMaxRecipeSteps, without a cast
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int32_t data_type = 0;  // of the products, so of scales: FLOAT or FLOAT16
  std::vector<MatrixUse> uses;

  [[nodiscard]] bool has(MatrixRole role) const;
  [[nodiscard]] bool is_gathered() const { return has(MatrixRole::kEmbedding); }
  [[nodiscard]] bool is_multiplied() const;
};

// The reasons why a weight stays in floats.
enum class FloatReason : std::uint8_t {
  kNone,
  kVector,       // it has fewer than two dimensions, as norms and biases
  kType,         // no kernel of the CPU has products of this type
  kReader,       // the operator `detail` reads it
  kFirstInput,   // it is the first input of a product
  kGemm,         // alpha, beta or transA of a Gemm
  kGatherAxis,   // not rows are gathered
  kBatches,      // the product has more than two dimensions
  kView,         // `detail` moves its elements in a way that is not known or that no recipe states
  kSeveral,      // nodes read it in different ways
  kGraphOutput,  // it is an output of a graph
  kReplaceable,  // it is an input with a default value, which the caller may replace
  kUnread,       // no node reads it
  // Set by choose_matrices():
  kSmall,    // it has fewer columns or rows than the options want
  kLong,     // more than kMaxQuantizedColumns columns
  kRouter,   // it chooses experts
  kPattern,  // the caller keeps it
  kChosen,   // the options keep its role as floats
  kBlocks,   // no block divides the rows of an embedding, or any rows in the standard form
  kForm,     // the standard form cannot gather its rows: `detail`
  kFloats,   // codes are kept, but the checkpoint has none for it
  kUnkept,   // no node multiplies by its codes: `detail`
};

// A float weight of the graph and what it is used for.
struct GraphWeight {
  std::string name;
  std::string key = {};  // StoredSlot::key
  // The origin of its elements: a tensor for `slot`, if the save has one; otherwise the model's own
  // data, external_tensors() or inline_tensors().
  std::uint32_t slot = kNoSlot;
  std::optional<std::size_t> external_tensor = {};
  std::optional<std::size_t> inline_tensor = {};
  bool is_stored = false;  // the save has a tensor for the slot
  std::int32_t data_type = 0;
  Shape dims;  // as the graph sees it
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;

  std::vector<Matrix> matrices;  // one or more, unless there is a reason against them
  FloatReason reason = FloatReason::kNone;
  std::string detail = {};  // of the reason
  // The nodes between the weight and the readers of its matrices; nothing else reads their outputs.
  std::vector<const onnx::NodeProto*> views;
};

// "Conv reads it"
[[nodiscard]] std::string float_reason_text(FloatReason reason, std::string_view detail);

// Lists the float weights of the main graph and its subgraphs that have elements, in the order of
// the slots; then tensors of two dimensions and more that Constant nodes hold. A pure function.
// `stored`: by slot, the tensor that a save stores there; nullopt for a slot that keeps the model's
// data. An open slot without a tensor is not listed. `inputs`: whether filled inputs stay inputs,
// so that callers may replace them. Linear in the size of the model.
[[nodiscard]] Result<std::vector<GraphWeight>> find_matrices(
    const Model& model, std::span<const std::optional<StoredSlot>> stored,
    MatchedInputs inputs = MatchedInputs::kRemove);

}  // namespace onnx_external
