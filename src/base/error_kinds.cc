#include "onnx_external/error_kinds.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error_lists.h"
#include "onnx_external/result.h"

namespace onnx_external {
namespace {

// A kind, its stable name, and its texts: the title of a list, and how a message counts the names.
struct Row {
  ErrorKind kind;
  std::string_view name;
  std::string_view title = "";
  std::string_view one = "";
  std::string_view many = "";
};

using K = ErrorKind;

constexpr std::array kRows = {
    Row{K::kNone, ""},
    Row{K::kMissing, "missing", "missing in the checkpoint",
        "weight of the graph is missing in the checkpoint",
        "weights of the graph are missing in the checkpoint"},
    Row{K::kLeftOut, "left-out", "constants and buffers without values",
        "value that no checkpoint has is missing in the graph",
        "values that no checkpoint has are missing in the graph"},
    Row{K::kUnused, "unused", "unused keys", "key is not used by the graph",
        "keys are not used by the graph"},
    Row{K::kAveraged, "averaged", "averaged copies",
        "key is the average (EMA) of a weight that is used",
        "keys are the averages (EMA) of weights that are used"},
    Row{K::kAdapter, "adapter", "weights of an adapter", "key belongs to an adapter (such as LoRA)",
        "keys belong to an adapter (such as LoRA)"},
    Row{K::kStale, "stale", "would stay old: computed at export",
        "value in the graph was computed from weights at export, and would stay old",
        "values in the graph were computed from weights at export, and would stay old"},
    Row{K::kMerged, "merged", "perhaps merged with a key that has no slot",
        "slot may stand for two weights that were equal at export",
        "slots may each stand for two weights that were equal at export"},
    Row{K::kMergedConstant, "merged-constant", "read by an operation that has no parameter",
        "weight may have been merged with a constant that was equal at export",
        "weights may have been merged with constants that were equal at export"},
    Row{K::kFused, "fused", "fused with a BatchNorm",
        "weight of the graph has a BatchNorm multiplied into it under its old name",
        "weights of the graph have a BatchNorm multiplied into them under their old names"},
    Row{K::kUnconfirmed, "unconfirmed", "model inputs to confirm",
        "input of the graph may be the caller's or a weight",
        "inputs of the graph may be the caller's or weights"},
    Row{K::kOtherType, "other-type", "of another type or shape"},
    Row{K::kOtherSize, "other-size", "of other sizes"},
    Row{K::kSlots, "slots", "slots of the graph", "slot of the graph", "slots of the graph"},
    Row{K::kKeys, "keys", "keys of the checkpoint", "key", "keys"},
    Row{K::kContradiction, "contradiction", "inputs of "},
    Row{K::kNotLinked, "not-linked"},
    Row{K::kWithoutData, "without-data", "without data", "weight of the graph has no data",
        "weights of the graph have no data"},
    Row{K::kInputsLikeWeights, "inputs-like-weights", "inputs that may be weights",
        "input of the graph has the name of a weight",
        "inputs of the graph have the names of weights"},
    Row{K::kInnerWithoutData, "inner-without-data", "in nodes and functions, without data",
        "other value has no data", "other values have no data"},
    Row{K::kLearnEqualBytes, "learn-equal-bytes",
        "several keys of the old checkpoint have its bytes, and they differ in the new one"},
    Row{K::kLearnCoincidence, "learn-coincidence",
        "may be a constant of the graph that has the value of a key by chance"},
    Row{K::kLearnReshaped, "learn-reshaped", "holds a key in another shape, and the key changes"},
    Row{K::kLearnMerged, "learn-merged",
        "several nodes use it, so that it may be a weight merged with a constant"},
    Row{K::kLearnSymmetric, "learn-symmetric",
        "holds a matrix that is its own transpose, which it no longer is in the new checkpoint"},
    Row{K::kLearnAttribute, "learn-attribute",
        "is in a node, where it cannot be replaced, and holds a key that changes"},
    Row{K::kLearnComputed, "learn-computed",
        "is not a tensor of the old checkpoint, and may be computed from keys that are nowhere in "
        "the "
        "graph and change"},
    Row{K::kLearnLikeChanged, "learn-like-changed",
        "is not a tensor of the old checkpoint, but has the size of one that changes, and may be "
        "computed from it"},
    Row{K::kLearnLacking, "learn-lacking", "holds a key that the new checkpoint lacks"},
    Row{K::kLearnShared, "learn-shared",
        "the graph holds the bytes of this key only in a tensor that several nodes use, under "
        "another key, and the two differ in the new checkpoint"},
    Row{K::kLearnOtherModel, "learn-other-model",
        "is not a tensor of the old checkpoint, which may not be the one that the graph was "
        "exported "
        "from: nothing in the graph is a tensor of it that changes"},
    Row{K::kLearnSeveralSlots, "learn-several-slots",
        "shares its name or its data with another slot, and the two need different values"},
    Row{K::kLearnFolded, "learn-folded",
        "was computed at export from keys that change, or that the new checkpoint lacks"},
};

// The rows are in the order of the enum.
constexpr bool are_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].kind != static_cast<ErrorKind>(i)) {
      return false;
    }
  }
  return true;
}
static_assert(are_in_order() && kRows.size() == kErrorKinds);

const Row& row_of(ErrorKind kind) {
  return kRows[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string_view error_kind_name(ErrorKind kind) {
  return row_of(kind).name;
}

std::string_view title_of(ErrorKind kind) {
  return row_of(kind).title;
}

std::string_view words_of(ErrorKind kind, std::size_t count) {
  return count == 1 ? row_of(kind).one : row_of(kind).many;
}

std::string list_title(const ErrorList& list) {
  const std::string title(title_of(list.kind));
  if (list.kind == ErrorKind::kContradiction) {
    return title + list.owner;
  }
  return list.owner.empty() ? title : list.owner + ": " + title;
}

ErrorKind kind_of(const ErrorDetails* details) {
  if (details == nullptr) {
    return ErrorKind::kNone;
  }
  const bool is_of_list = details->kind == ErrorKind::kNone && !details->lists.empty();
  return is_of_list ? details->lists.front().kind : details->kind;
}

std::string_view option_name(RemedyOption option) {
  static constexpr std::array kNames = {
      "attributes", "convert", "dtype",     "ignore", "inputs",     "keep",      "keep-float",
      "key",        "layout",  "learn-map", "map",    "max-expand", "no-fsync",  "overlay",
      "overwrite",  "partial", "prefix",    "rename", "threads",    "unmatched", "variant"};
  static_assert(kNames.size() == kRemedyOptions);
  return kNames[static_cast<std::size_t>(option)];
}

}  // namespace onnx_external
