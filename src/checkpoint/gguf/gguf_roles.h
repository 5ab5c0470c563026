// Defines a table of the tensors in each GGUF architecture, with their names in transformers and
// the conversion to transformers' layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// The conversion of a stored tensor to transformers' layout.
enum class GgufForm : std::uint8_t {
  kSame,
  kQuery,          // queries, with rows in another order (GgufArchitecture::permutes)
  kKey,            // keys, with rows in another order
  kQueryKeyValue,  // the rows of queries, keys and values, one after another
  kNorm,           // each value is larger by 1 than in transformers (GgufArchitecture::adds_one)
  kTransposed,     // transposed: the weight of a Conv1D
  kRow,            // [n] in the file, [1, n] in transformers
  kExperts,        // all experts in one tensor; in transformers, each expert has its own
  kTurned,         // all experts in one tensor, each transposed
  kUp,             // like kGate, which follows it in the table
  kGate,  // all experts, each transposed; in transformers, its rows and those of kUp alternate
  kBare,  // the name in transformers has no ".weight"
};

// States which layers have a tensor.
enum class GgufNeed : std::uint8_t {
  kAlways,
  kMay,
  kDense,  // layers of models without experts
  kMoe,    // layers of models with experts
  kSplit,  // layers without a kFused tensor
  kFused,
};

enum class GgufBias : std::uint8_t { kNever, kMay, kAlways };

// The meaning of the letters in `dims`, outermost dimension first:
//   W width   V vocabulary   F inner size of the MLP, G twice that   C longest context
//   N heads   H size of a head   Q all of the queries, K of the keys, U of the values, O of the
//   outputs, P of Q, K and U   X experts   M inner size of an expert   S of the shared expert
struct GgufRole {
  std::string_view gguf;  // name in the file without ".weight" and, for layers, without "blk.3."
  std::string_view name;  // name after the layer's prefix; '#' stands for the expert's index
  std::string_view dims;
  GgufForm form = GgufForm::kSame;
  GgufNeed need = GgufNeed::kAlways;
  GgufBias bias = GgufBias::kNever;
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view layers;  // transformers' prefix of layers, before their index
  std::span<const GgufRole> top;
  std::span<const GgufRole> layer;
  bool permutes = false;  // rows of queries and keys are in another order
  bool adds_one = false;  // 1 has been added to the weights of norms
};

// Returns null if the architecture is not supported.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view name);
// Lists the supported architectures: "arcee, gemma, ...".
[[nodiscard]] std::string gguf_architecture_names();

}  // namespace onnx_external
