// Defines derived tensors and adds them to a checkpoint. A derived tensor is not stored in a file,
// but computed from tensors of the checkpoint by recipes (recipe.h), concatenation and stacking.
//
// A derived tensor has a name and is a key (a tensor of the checkpoint) like any other: every
// mapping rule may use it. Its bytes are computed whenever they are read, through buffers of fixed
// size. The definitions are plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class DerivationKind : std::uint8_t {
  kKey,     // a key of the checkpoint, or another derived tensor
  kConcat,  // like torch.cat(parts, dim): shapes are equal except in that dimension
  kStack,   // like torch.stack(parts, dim): shapes are equal; `dim` is a new dimension
};

// The formula of a derived tensor. All parts have the same element type.
struct Derivation {
  DerivationKind kind = DerivationKind::kKey;
  std::string key = {};                // kKey only
  std::vector<Derivation> parts = {};  // kConcat and kStack: at least one
  std::int64_t dim = 0;                // kConcat and kStack; if negative, counted from the end
  Recipe recipe = {};                  // applied to the result; may not contain a cast

  friend bool operator==(const Derivation&, const Derivation&) = default;
};

struct DerivedTensor {
  std::string name;
  Derivation from;

  friend bool operator==(const DerivedTensor&, const DerivedTensor&) = default;
};

// Definitions may refer to each other, in any order, but may not be nested deeper than this; a key
// has depth 0.
inline constexpr std::size_t kMaxDerivedDepth = 8;
// The maximum number of parts in all definitions together.
inline constexpr std::size_t kMaxDerivedParts = 1'000'000;

// Appends the tensors to checkpoint.tensors(), in the order of their definitions. After an error
// the checkpoint is unchanged. Reads no tensor. Requires: nothing else uses the checkpoint during
// the call.
//
// `max_expand` is the same limit as OpenOptions::max_expand; derived tensors also count. Errors:
// kNotFound for a key that does not exist; kAmbiguous for a name that exists already; kMismatch for
// shapes and element types that do not fit each other or a recipe; kInvalidArgument for definitions
// that are nested too deeply (as in a circle), too many parts, or an invalid definition;
// kUnsupported if the result expands too far, and for keys whose bytes are produced on demand
// (LazyBytes).
[[nodiscard]] Status add_derived_tensors(Checkpoint& checkpoint,
                                         std::span<const DerivedTensor> derived,
                                         std::uint64_t max_expand = OpenOptions{}.max_expand);

}  // namespace onnx_external
