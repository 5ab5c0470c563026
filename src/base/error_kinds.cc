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
    Row{K::kMissing, "missing", "missing from the checkpoint",
        "weight of the graph is missing from the checkpoint",
        "weights of the graph are missing from the checkpoint"},
    Row{K::kLeftOut, "left-out", "constants and buffers without values",
        "value that no checkpoint contains is missing from the graph",
        "values that no checkpoint contains are missing from the graph"},
    Row{K::kUnused, "unused", "unused keys", "key is not used by the graph",
        "keys are not used by the graph"},
    Row{K::kAveraged, "averaged", "averaged copies",
        "key is the average (EMA) of a weight that is used",
        "keys are the averages (EMA) of weights that are used"},
    Row{K::kAdapter, "adapter", "weights of an adapter", "key belongs to an adapter (such as LoRA)",
        "keys belong to an adapter (such as LoRA)"},
    Row{K::kStale, "stale", "computed at export, would become outdated",
        "value in the graph was computed from weights at export, and would become outdated",
        "values in the graph were computed from weights at export, and would become outdated"},
    Row{K::kMerged, "merged", "perhaps merged with a key that has no slot",
        "slot may represent two weights that were equal at export",
        "slots may each represent two weights that were equal at export"},
    Row{K::kMergedConstant, "merged-constant", "read by an operation that has no parameter",
        "weight may have been merged with a constant that was equal at export",
        "weights may have been merged with constants that were equal at export"},
    Row{K::kFused, "fused", "fused with a BatchNorm",
        "weight of the graph has a BatchNorm folded into it, but kept its name",
        "weights of the graph have a BatchNorm folded into them, but kept their names"},
    Row{K::kUnconfirmed, "unconfirmed", "model inputs to confirm",
        "input of the graph may be a weight, or an input that the caller supplies",
        "inputs of the graph may be weights, or inputs that the caller supplies"},
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
        "its bytes equal several keys of the old checkpoint, which differ in the new checkpoint"},
    Row{K::kLearnCoincidence, "learn-coincidence",
        "may be a constant of the graph that equals a key only by chance"},
    Row{K::kLearnReshaped, "learn-reshaped",
        "contains the data of a key in another shape, and that data changes"},
    Row{K::kLearnMerged, "learn-merged",
        "is used by several nodes, so it may be a weight that was merged with a constant"},
    Row{K::kLearnSymmetric, "learn-symmetric",
        "contains a symmetric matrix that is no longer symmetric in the new checkpoint"},
    Row{K::kLearnAttribute, "learn-attribute",
        "is stored in a node, where it cannot be replaced, and contains the data of a key that "
        "changes"},
    Row{K::kLearnComputed, "learn-computed",
        "is not a tensor of the old checkpoint, and may have been computed from keys that change "
        "and are not in the graph"},
    Row{K::kLearnLikeChanged, "learn-like-changed",
        "is not a tensor of the old checkpoint, but has the size of a tensor that changes, and may "
        "have been computed from that tensor"},
    Row{K::kLearnLacking, "learn-lacking",
        "contains the data of a key that the new checkpoint lacks"},
    Row{K::kLearnShared, "learn-shared",
        "the graph contains the bytes of this key only in a tensor that several nodes use under "
        "another key, and the two keys differ in the new checkpoint"},
    Row{K::kLearnOtherModel, "learn-other-model",
        "is not a tensor of the old checkpoint, and the graph may have been exported from another "
        "checkpoint: it contains none of the old checkpoint's tensors that change"},
    Row{K::kLearnSeveralSlots, "learn-several-slots",
        "shares its name or its data with another slot, and the two slots need different values"},
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
