#include "evidence/learn_refusals.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error_lists.h"
#include "base/text.h"
#include "mapping/advice.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kCandidatesShown = 3;

std::string text_of(const ErrorItem& item, ErrorKind doubt) {
  std::string text = quote(item.name) + (item.form.empty() ? "" : " " + item.form) + " ";
  text += title_of(doubt);
  if (!item.candidates.empty()) {
    text += ": " + quote_list(item.candidates, kCandidatesShown);
  }
  return text;
}

}  // namespace

void LearnRefusals::add(ErrorKind doubt, const Slot& slot, std::vector<std::string> keys) {
  ErrorItem item{slot.name, form_of(slot), {}, std::move(keys)};
  if (!slot.consumer_op.empty()) {
    item.note = "used by " + slot.consumer_op + " " + quote(slot.consumer_name);
  }
  refusals_.push_back({doubt, std::move(item)});
}

void LearnRefusals::add(ErrorKind doubt, const GraphTensor& tensor, std::vector<std::string> keys) {
  refusals_.push_back(
      {doubt,
       {std::string(tensor.shown_name()),
        std::string(onnx_type_name(tensor.data_type())) + " " + shape_text(tensor.dims()),
        {},
        std::move(keys)}});
}

void LearnRefusals::add_key(ErrorKind doubt, std::string_view key) {
  refusals_.push_back({doubt, {std::string(key), {}, {}, {}}});
}

bool LearnRefusals::are_all(std::initializer_list<ErrorKind> doubts) const {
  return std::all_of(refusals_.begin(), refusals_.end(), [&](const Refusal& refusal) {
    return std::find(doubts.begin(), doubts.end(), refusal.doubt) != doubts.end();
  });
}

const char* LearnRefusals::right_way() const {
  if (are_all({ErrorKind::kLearnLacking})) {
    return "pass a new checkpoint that has these keys";
  }
  return are_all({ErrorKind::kLearnOtherModel})
             ? "pass the checkpoint that the graph was exported from"
             : kPlainExport;
}

// No remedy keeps data that is known to change, or ignores the keys that it is computed from: the
// model would be silently wrong.
std::vector<Remedy> LearnRefusals::remedies() const {
  std::vector<Remedy> found;
  if (are_all({ErrorKind::kLearnEqualBytes, ErrorKind::kLearnMerged, ErrorKind::kLearnSeveralSlots,
               ErrorKind::kLearnCoincidence})) {
    found.push_back({RemedyOption::kMap, "FILE", "to say which key fills which slot"});
  }
  if (are_all({ErrorKind::kLearnCoincidence, ErrorKind::kLearnLikeChanged})) {
    found.push_back(
        {RemedyOption::kKeep, "NAMES",
         "only for data that certainly does not depend on weights; otherwise the model is wrong"});
  }
  return found;
}

Status LearnRefusals::status() const {
  if (refusals_.empty()) {
    return {};
  }
  auto details = std::make_shared<ErrorDetails>();
  for (std::size_t i = 0; i < kErrorKinds; ++i) {
    ErrorList list{static_cast<ErrorKind>(i), "", {}};
    for (const Refusal& refusal : refusals_) {
      if (refusal.doubt == list.kind) {
        list.items.push_back(refusal.item);
      }
    }
    if (!list.items.empty()) {
      details->lists.push_back(std::move(list));
    }
  }
  details->remedies = remedies();
  std::string message = "the old checkpoint does not determine the mapping: " +
                        text_of(refusals_.front().item, refusals_.front().doubt);
  if (refusals_.size() > 1) {
    message += " (and " + std::to_string(refusals_.size() - 1) + " more)";
  }
  message += std::string("; ") + right_way();
  const bool lacking = are_all({ErrorKind::kLearnLacking});
  return fail(Error{lacking ? ErrorCode::kNotFound : ErrorCode::kAmbiguous, std::move(message),
                    std::move(details)});
}

}  // namespace onnx_external
