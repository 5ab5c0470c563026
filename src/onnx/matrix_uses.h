// Finds the weights of a graph that can be quantized. These are float matrices that MatMul, Gemm or
// Gather nodes read, directly or through nodes that only move or convert elements. Every other
// weight gets a reason why it stays in floats.
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

// Describes the tensor that a save stores for a slot, which is the result of applying `recipe` to a
// tensor of shape `shape`. Its ONNX data type is `data_type`.
struct StoredSlot {
  std::int32_t data_type = 0;
  Shape shape;  // shape of the key's tensor
  Recipe recipe = {};
  std::string key = {};
};

enum class MatrixRole : std::uint8_t {
  kLinear,
  kHead,       // the product becomes an output of the graph, or an ArgMax or TopK over many columns
               // reads it
  kEmbedding,  // a Gather returns its rows
  kRouter,     // a TopK or ArgMax over at most kMaxRouted columns reads the product
};
// Returns "linear", "head", "embedding" or "router".
[[nodiscard]] std::string_view role_name(MatrixRole role);
inline constexpr std::int64_t kMaxRouted = 1024;

// A node that reads a matrix.
struct MatrixUse {
  const onnx::NodeProto* node = nullptr;
  std::uint32_t graph = 0;  // see Slot::graph
  MatrixRole role = MatrixRole::kLinear;
  // For a Gemm, the name of its input C ("" if it has none), and whether C has shape [N], which
  // MatMulNBits requires for a bias.
  std::string addend = {};
  bool addend_is_bias = false;
};

// The part of a weight that nodes read as a matrix [n, k], where each of the n results is a sum of
// k products. For an embedding, the rows are the vectors.
struct Matrix {
  Recipe rows;  // from the weight's source to [n, k]; at most kMaxRecipeSteps steps, without a cast
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int32_t data_type = 0;  // type of the products and of the scales: FLOAT or FLOAT16
  std::vector<MatrixUse> uses;

  [[nodiscard]] bool has(MatrixRole role) const;
  [[nodiscard]] bool is_gathered() const { return has(MatrixRole::kEmbedding); }
  [[nodiscard]] bool is_multiplied() const;
};

// The reason why a weight stays in floats.
enum class FloatReason : std::uint8_t {
  kNone,
  kVector,       // it has fewer than two dimensions, like norms and biases
  kType,         // no CPU kernel supports this type
  kReader,       // the operator `detail` reads the weight
  kFirstInput,   // the weight is the first input of a product
  kGemm,         // a Gemm reads it with an unsupported alpha, beta or transA
  kGatherAxis,   // a Gather reads it along another axis than the rows
  kBatches,      // the weight does not have two dimensions in the product
  kView,         // `detail` moves its elements in a way that no recipe describes
  kSeveral,      // nodes read it in different ways
  kGraphOutput,  // it is an output of a graph
  kReplaceable,  // it is the default value of an input, which the caller may replace
  kUnread,       // no node reads it
  // Reasons that choose_matrices() sets:
  kSmall,    // it has fewer columns or rows than the options require
  kLong,     // it has more than kMaxQuantizedColumns columns
  kRouter,   // it is a router, which chooses experts
  kPattern,  // the caller keeps it in floats by name
  kChosen,   // the options keep weights of its role in floats
  kBlocks,   // no block size divides the rows of an embedding or, in the standard form, of any
             // matrix
  kForm,     // the standard form has no Gather for these rows: `detail`
  kFloats,   // the checkpoint's codes are kept, but it has none for this weight
  kUnkept,   // no node can multiply by its codes: `detail`
};

// A float weight of the graph, and how the graph uses it.
struct GraphWeight {
  std::string name;
  std::string key = {};  // StoredSlot::key
  // The source of the elements. It is the tensor that the save has for `slot`, if there is one.
  // Otherwise, it is the model's own data in external_tensors() or inline_tensors().
  std::uint32_t slot = kNoSlot;
  std::optional<std::size_t> external_tensor = {};
  std::optional<std::size_t> inline_tensor = {};
  bool is_stored = false;  // the save has a tensor for the slot
  std::int32_t data_type = 0;
  Shape dims;  // dims in the graph
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;

  std::vector<Matrix> matrices;  // not empty if the weight can be quantized
  FloatReason reason = FloatReason::kNone;
  std::string detail = {};  // details for the reason
  // The nodes between the weight and the nodes that read it as a matrix. No other node reads their
  // outputs.
  std::vector<const onnx::NodeProto*> views;
};

// Returns a reason as text: "Conv reads it".
[[nodiscard]] std::string float_reason_text(FloatReason reason, std::string_view detail);

// Lists the float weights of the main graph and its subgraphs that are not empty, in the order of
// the slots, then the tensors with at least two dimensions in Constant nodes. `stored` has, for
// each slot, the tensor that a save stores there, or nullopt if the slot keeps the model's data. A
// slot without data for which the save has no tensor is not listed. `inputs` states whether filled
// inputs stay inputs, so that callers may replace them. A pure function. Takes linear time in the
// size of the model.
[[nodiscard]] Result<std::vector<GraphWeight>> find_matrices(
    const Model& model, std::span<const std::optional<StoredSlot>> stored,
    MatchedInputs inputs = MatchedInputs::kRemove);

}  // namespace onnx_external
