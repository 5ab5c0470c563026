#include "mapping/advice.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error_lists.h"
#include "base/text.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kNamesInMessage = 3;  // of each list; the lists have them all

// Unquoted for known operators, quoted for anything else that a file may state.
std::string operator_text(const std::string& op) {
  const bool plain = std::all_of(op.begin(), op.end(),
                                 [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return plain && op.size() <= kMaxQuotedBytes ? op : quote(op);
}

// Remedies that would make a wrong model if the caller is mistaken about the names come last.
int risk_of(RemedyOption option) {
  switch (option) {
    case RemedyOption::kPartial:
      return 2;
    case RemedyOption::kIgnore:
    case RemedyOption::kKeep:
    case RemedyOption::kUnmatched:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

void Refusal::set_graph(std::string_view name) {
  graph_ = name;
}

void Refusal::add_lead(const std::string& sentence) {
  if (!message_.starts_with(sentence)) {
    message_ = sentence + (message_.empty() ? "" : "; ") + message_;
  }
}

void Refusal::add_list(ErrorKind kind, std::vector<ErrorItem> items) {
  if (items.empty()) {
    return;
  }
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const ErrorItem& item : items) {
    names.push_back(item.name);
  }
  message_ += message_.empty() ? "" : "; ";
  message_ += graph_.empty() ? "" : graph_ + ": ";
  message_ += std::to_string(items.size()) + " " + std::string(words_of(kind, items.size())) +
              ": " + quote_list(names, kNamesInMessage);
  details_.lists.push_back({kind, graph_, std::move(items)});
}

void Refusal::add_sentence(const std::string& sentence) {
  if (std::find(sentences_.begin(), sentences_.end(), sentence) == sentences_.end()) {
    sentences_.push_back(sentence);
  }
}

void Refusal::add_remedy(Remedy remedy) {
  std::vector<Remedy>& all = details_.remedies;
  if (std::find(all.begin(), all.end(), remedy) == all.end()) {
    all.push_back(std::move(remedy));
  }
}

Error Refusal::error(ErrorCode code) && {
  for (const std::string& sentence : sentences_) {
    message_ += "; " + sentence;
  }
  std::stable_sort(
      details_.remedies.begin(), details_.remedies.end(),
      [](const Remedy& a, const Remedy& b) { return risk_of(a.option) < risk_of(b.option); });
  return {code, std::move(message_), std::make_shared<const ErrorDetails>(std::move(details_))};
}

std::string use_text(const Slot& slot) {
  if (slot.consumer_count == 0) {
    return "";
  }
  if (slot.consumer_op.empty()) {
    return "an output of the graph";
  }
  return "used by " + operator_text(slot.consumer_op) +
         (slot.consumer_name.empty() ? "" : " " + quote(slot.consumer_name)) +
         (slot.consumer_count > 1 ? " and " + std::to_string(slot.consumer_count - 1) + " more"
                                  : "");
}

ErrorItem item_of(const Slot& slot, std::string note) {
  return {slot.name, form_of(slot), std::move(note), {}};
}

ErrorItem item_of(const MappingKey& key, std::string note) {
  return {key.name, form_of(key), std::move(note), {}};
}

}  // namespace onnx_external
