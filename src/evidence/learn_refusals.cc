#include "evidence/learn_refusals.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/text.h"
#include "mapping/advice.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kCandidatesShown = 3;

// The title of the list of all tensors with a doubt, in the order of the enum.
constexpr std::array<std::string_view, kDoubtCount> kTitles = {
    "several keys of the old checkpoint have its bytes, and they differ in the new one",
    "may be a constant of the graph that has the value of a key by chance",
    "holds a key in another shape, and the key changes",
    "several nodes use it, so that it may be a weight merged with a constant",
    "holds a matrix that is its own transpose, which it no longer is in the new checkpoint",
    "stands in a node, where it cannot be replaced, and holds a key that changes",
    "is no tensor of the old checkpoint, and may be computed from keys that are nowhere in the "
    "graph and change",
    "is no tensor of the old checkpoint, but has the size of one that changes, and may be "
    "computed from it",
    "holds a key that the new checkpoint lacks",
    "the graph holds the bytes of this key only in a tensor that several nodes use, under another "
    "key, and the two differ in the new checkpoint",
    "is no tensor of the old checkpoint, which may not be the one that the graph was exported "
    "from: nothing in the graph is a tensor of it that changes",
    "shares its name or its data with another slot, and the two need different values",
    "was computed at export from keys that change, or that the new checkpoint lacks"};

std::string_view title_of(Doubt doubt) {
  return kTitles[static_cast<std::size_t>(doubt)];
}

std::string text_of(const ErrorItem& item, Doubt doubt) {
  std::string text = quote(item.name) + (item.form.empty() ? "" : " " + item.form) + " ";
  text += title_of(doubt);
  if (!item.candidates.empty()) {
    text += ": " + quote_list(item.candidates, kCandidatesShown);
  }
  return text;
}

}  // namespace

void LearnRefusals::add(Doubt doubt, const Slot& slot, std::vector<std::string> keys) {
  ErrorItem item{slot.name, form_of(slot), {}, std::move(keys)};
  if (!slot.consumer_op.empty()) {
    item.note = "used by " + slot.consumer_op + " " + quote(slot.consumer_name);
  }
  refusals_.push_back({doubt, std::move(item)});
}

void LearnRefusals::add(Doubt doubt, const GraphTensor& tensor, std::vector<std::string> keys) {
  refusals_.push_back(
      {doubt,
       {std::string(tensor.shown_name()),
        std::string(onnx_type_name(tensor.data_type())) + " " + shape_text(tensor.dims()),
        {},
        std::move(keys)}});
}

void LearnRefusals::add_key(Doubt doubt, std::string_view key) {
  refusals_.push_back({doubt, {std::string(key), {}, {}, {}}});
}

bool LearnRefusals::are_all(std::initializer_list<Doubt> doubts) const {
  return std::all_of(refusals_.begin(), refusals_.end(), [&](const Refusal& refusal) {
    return std::find(doubts.begin(), doubts.end(), refusal.doubt) != doubts.end();
  });
}

const char* LearnRefusals::right_way() const {
  if (are_all({Doubt::kLacking})) {
    return "give the new checkpoint with these keys";
  }
  return are_all({Doubt::kOtherModel}) ? "give the checkpoint that the graph was exported from"
                                       : kPlainExport;
}

// No remedy keeps data that is known to change, or ignores the keys that it is computed from: the
// model would be silently wrong.
std::vector<Remedy> LearnRefusals::remedies() const {
  std::vector<Remedy> found;
  if (are_all({Doubt::kEqualBytes, Doubt::kMerged, Doubt::kSeveralSlots, Doubt::kCoincidence})) {
    found.push_back({"map", "FILE", "to say which key fills which slot"});
  }
  if (are_all({Doubt::kCoincidence, Doubt::kLikeChanged})) {
    found.push_back({"keep", "NAMES",
                     "only for data that certainly depends on no weight; else the model is wrong"});
  }
  return found;
}

Status LearnRefusals::status() const {
  if (refusals_.empty()) {
    return {};
  }
  auto details = std::make_shared<ErrorDetails>();
  for (std::size_t i = 0; i < kDoubtCount; ++i) {
    ErrorList list{std::string(title_of(static_cast<Doubt>(i))), {}};
    for (const Refusal& refusal : refusals_) {
      if (refusal.doubt == static_cast<Doubt>(i)) {
        list.items.push_back(refusal.item);
      }
    }
    if (!list.items.empty()) {
      details->lists.push_back(std::move(list));
    }
  }
  details->remedies = remedies();
  std::string message = "the old checkpoint does not tell what to do: " +
                        text_of(refusals_.front().item, refusals_.front().doubt);
  if (refusals_.size() > 1) {
    message += " (and " + std::to_string(refusals_.size() - 1) + " more)";
  }
  message += std::string("; ") + right_way();
  const bool lacking = are_all({Doubt::kLacking});
  return fail(Error{lacking ? ErrorCode::kNotFound : ErrorCode::kAmbiguous, std::move(message),
                    std::move(details)});
}

}  // namespace onnx_external
