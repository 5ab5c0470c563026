// Defines derived tensors and adds them to a checkpoint. A derived tensor is not stored in a file,
// but computed from tensors of the checkpoint by recipes (recipe.h), concatenation and stacking.
//
// A derived tensor has a name, and every mapping rule treats it like a tensor that is stored in the
// checkpoint. Its bytes are computed each time they are read, through buffers of fixed size. The
// definitions are plain values.
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

// The maximum depth to which definitions may refer to other definitions. A definition may refer to
// a later one. A key has depth 0.
inline constexpr std::size_t kMaxDerivedDepth = 8;
// The maximum number of parts in all definitions together.
inline constexpr std::size_t kMaxDerivedParts = 1'000'000;

// Appends the tensors to checkpoint.tensors(), in the order of their definitions. After an error
// the checkpoint is unchanged. Reads no tensor. Requires: nothing else uses the checkpoint during
// the call.
//
// `max_expand` is the limit that OpenOptions::max_expand describes, applied to all tensors
// including the derived ones.
//
// Errors:
// - kNotFound for a key that does not exist.
// - kAmbiguous for a name that already exists.
// - kMismatch if shapes or element types do not fit each other or a recipe.
// - kInvalidArgument for an invalid definition, for too many parts, and for definitions that are
//   nested too deeply. Circular definitions count as nested too deeply.
// - kUnsupported if the tensors exceed `max_expand`, and for keys whose bytes are produced on
//   demand (LazyBytes).
[[nodiscard]] Status add_derived_tensors(Checkpoint& checkpoint,
                                         std::span<const DerivedTensor> derived,
                                         std::uint64_t max_expand = OpenOptions{}.max_expand);

}  // namespace onnx_external
