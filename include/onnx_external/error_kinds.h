// Defines the stable identifiers in errors: the kind of fault, and the options that may help.
// Programs should rely on these identifiers, because titles and messages may change. In the
// comments below, a slot is a value of the graph that a checkpoint can supply, and a key is a
// tensor of the checkpoint.
#pragma once

#include <cstdint>
#include <string_view>

namespace onnx_external {

// The kind of fault. It applies to all names in one list of an error, or to the save as a whole.
enum class ErrorKind : std::uint8_t {
  kNone,  // there is nothing to add to the ErrorCode
  // Faults between a graph and a checkpoint.
  kMissing,         // weights of the graph that the checkpoint lacks
  kLeftOut,         // constants and buffers without values, which no checkpoint has
  kUnused,          // keys that the graph does not use
  kAveraged,        // keys that are averages (EMA) of weights that are used
  kAdapter,         // keys of an adapter (such as LoRA)
  kStale,           // values that were computed from weights at export, and would become outdated
  kMerged,          // slots that may be two weights, merged because they were equal at export
  kMergedConstant,  // weights that may have been merged with constants
  kFused,           // weights with a BatchNorm folded into them
  kUnconfirmed,     // inputs that may be weights or inputs of the caller
  kOtherType,       // slots whose keys have a different type or shape
  kOtherSize,       // tensors whose sizes differ from those that a config states
  kSlots,           // all slots of a graph, if no key fits any of them
  kKeys,            // all keys of a checkpoint, if no key fits a slot
  kContradiction,   // inputs of a node that cannot have the shapes and types stated for them
  kNotLinked,       // data that a model cannot refer to in place, so a layout must copy it
  // Faults in the model itself, without a checkpoint.
  kWithoutData,        // weights that would have no data
  kInputsLikeWeights,  // inputs that have the names of weights
  kInnerWithoutData,   // attributes, sparse initializers and names in functions without data
  // Tensors for which an old checkpoint (--learn-map) does not determine a key.
  kLearnEqualBytes,    // equals several old keys whose new values differ
  kLearnCoincidence,   // the value is too simple to distinguish a weight from a constant
  kLearnReshaped,      // the bytes of a key in another shape
  kLearnMerged,        // a small tensor with several users, perhaps merged
  kLearnSymmetric,     // a symmetric matrix that is not symmetric in the new checkpoint
  kLearnAttribute,     // in an attribute of a node, where it cannot be replaced
  kLearnComputed,      // may be computed from keys that the graph does not hold
  kLearnLikeChanged,   // has the same size as a key that changes
  kLearnLacking,       // the new checkpoint lacks the key
  kLearnShared,        // a key that shares a slot with another one
  kLearnOtherModel,    // nothing in the graph that could change is from the old checkpoint
  kLearnSeveralSlots,  // a name or data used by several slots that need different values
  kLearnFolded,        // computed from keys that change, according to the exporter
};

// Returns the stable name that JSON documents and Python exceptions use, such as "missing" or
// "unused"; "" for kNone. docs/python.md lists the names.
[[nodiscard]] std::string_view error_kind_name(ErrorKind kind);

// An option that an error may suggest.
enum class RemedyOption : std::uint8_t {
  kAttributes,
  kConvert,
  kDtype,
  kIgnore,
  kInputs,
  kKeep,
  kKeepFloat,
  kKey,
  kLayout,
  kLearnMap,
  kMap,
  kMaxExpand,
  kNoFsync,
  kOverlay,
  kOverwrite,
  kPartial,
  kPrefix,
  kRename,
  kThreads,
  kUnmatched,
  kVariant,
};

// Returns the name of the command line option without the leading dashes, such as "max-expand".
[[nodiscard]] std::string_view option_name(RemedyOption option);

}  // namespace onnx_external
