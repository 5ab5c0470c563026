// A table of the tensors of each architecture in GGUF files, with their names in transformers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// The conversion of a stored tensor to that of transformers.
enum class GgufForm : std::uint8_t {
  kSame,
  kQuery,          // rows in another order (GgufArchitecture::permutes)
  kKey,            // likewise
  kQueryKeyValue,  // rows of three tensors, one after another
  kNorm,           // one more than in transformers (GgufArchitecture::adds_one)
  kTransposed,     // a Conv1D's
  kRow,            // [n], and [1, n] in transformers
  kExperts,        // of all experts, one after another, and one tensor each in transformers
  kTurned,         // of all experts, each one transposed
  kUp,             // in front of kGate in the table
  kGate,           // of all experts, each one transposed; its rows and those of kUp alternate
  kBare,           // its name in transformers has no ".weight"
};

// Decides which layers have a tensor.
enum class GgufNeed : std::uint8_t {
  kAlways,
  kMay,
  kDense,  // those of models without experts
  kMoe,    // those of models with experts
  kSplit,  // those without kFused
  kFused,
};

enum class GgufBias : std::uint8_t { kNever, kMay, kAlways };

// The letters of `dims`, outermost dimension first:
//   W width   V vocabulary   F inner size of the MLP, G twice that   C longest context
//   N heads   H size of a head   Q all of the queries, K of the keys, U of the values, O of the
//   outputs, P of Q, K and U   X experts   M inner size of an expert   S of the shared expert
struct GgufRole {
  std::string_view gguf;  // behind "blk.3." for tensors of layers, in front of ".weight"
  std::string_view name;  // behind the layer's prefix; '#' is replaced by the number of the expert
  std::string_view dims;
  GgufForm form = GgufForm::kSame;
  GgufNeed need = GgufNeed::kAlways;
  GgufBias bias = GgufBias::kNever;
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view layers;  // the prefix of layers in transformers, in front of their number
  std::span<const GgufRole> top;
  std::span<const GgufRole> layer;
  bool permutes = false;  // the rows of queries and keys
  bool adds_one = false;  // to the weights of norms
};

// Null for an architecture that is not supported.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view name);
// "arcee, gemma, ...".
[[nodiscard]] std::string gguf_architecture_names();

}  // namespace onnx_external
