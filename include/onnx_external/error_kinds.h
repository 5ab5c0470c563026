// Defines the stable identifiers in errors: the kind of fault, and the options that may help.
// Programs should rely on these identifiers; titles and messages are for people and may change. In
// what follows, a slot is a value of the graph that the checkpoint can supply, and a key is a
// tensor of the checkpoint.
#pragma once

#include <cstdint>
#include <string_view>

namespace onnx_external {

// The fault that all names in a list of an error have in common, or the fault of the save as a
// whole.
enum class ErrorKind : std::uint8_t {
  kNone,  // the ErrorCode says everything
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
  kKeys,            // all keys of a checkpoint, if none of them fits a slot
  kContradiction,   // inputs of a node that cannot have the shapes and types stated for them
  kNotLinked,       // data that a model cannot refer to in place: use a layout that copies it
  // Faults in the model itself, without a checkpoint.
  kWithoutData,        // weights that would have no data
  kInputsLikeWeights,  // inputs that have the names of weights
  kInnerWithoutData,   // the same for attributes, sparse initializers and names in functions
  // Tensors for which an old checkpoint (--learn-map) does not determine a key.
  kLearnEqualBytes,    // equals several keys, which differ in the new checkpoint
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
  kLearnSeveralSlots,  // its name or data serves several slots that need different values
  kLearnFolded,        // computed from keys that change, according to the exporter
};

// "missing", "unused", ...: the stable name in JSON documents and Python exceptions, which
// docs/python.md lists; "" for kNone.
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

// "max-expand", ...: the name of the command line option, without the leading dashes.
[[nodiscard]] std::string_view option_name(RemedyOption option);

}  // namespace onnx_external
