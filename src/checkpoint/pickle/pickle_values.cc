// Numbers and strings: their opcodes, and how nodes store them.

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/pickle/pickle_machine.h"
#include "checkpoint/pickle/pickle_text.h"

namespace onnx_external {

Status PickleMachine::push_long(std::uint64_t length) {
  TRY_ASSIGN(const auto raw, reader_.take(length, "an int"));
  if (raw.size() > sizeof(std::int64_t)) {
    return push_new({.kind = NodeKind::kBigInteger});
  }
  const bool negative = !raw.empty() && (raw.back() & std::byte{0x80}) != std::byte{0};
  std::int64_t value = negative ? -1 : 0;
  std::memcpy(&value, raw.data(), raw.size());
  return push_new(PickleNode::of_number(NodeKind::kInteger, value));
}

// Returns whether the byte string at this position was left out of the text.
bool PickleMachine::is_cut(NodeKind kind, std::uint64_t length) const {
  const auto& cuts = pickle_.text_.cuts;
  return kind == NodeKind::kBytes && next_cut_ < cuts.size() &&
         cuts[next_cut_].at == reader_.position() && cuts[next_cut_].place.length == length;
}

Status PickleMachine::push_float() {
  const auto bits = reader_.read<std::uint64_t>("a float");  // big-endian
  if (!bits) {
    return fail(bits.error());
  }
  return push_new(
      PickleNode::of_number(NodeKind::kFloat, static_cast<std::int64_t>(__builtin_bswap64(*bits))));
}

Status PickleMachine::push_text_integer() {
  TRY_ASSIGN(auto text, line());
  if (text == "00" || text == "01") {  // how protocol 0 spells bools
    return push(text == "01" ? kTrueId : kFalseId);
  }
  if (text.ends_with('L')) {
    text.remove_suffix(1);
  }
  if (const auto value = parse_number<std::int64_t>(text)) {
    return push_new(PickleNode::of_number(NodeKind::kInteger, *value));
  }
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return corrupt("not an int: " + quote(text));
  }
  return push_new({.kind = NodeKind::kBigInteger});
}

Status PickleMachine::push_text_string() {
  TRY_ASSIGN(const auto text, line());
  const bool quoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
                      text.back() == text.front();
  if (!quoted) {
    return corrupt("a string without quotes");
  }
  return push(add_decoded(unescape(text.substr(1, text.size() - 2))));
}

Status PickleMachine::push_text_unicode() {
  TRY_ASSIGN(const auto text, line());
  return push(add_decoded(unescape_unicode(text)));
}

Result<std::uint32_t> PickleMachine::index_line() {
  TRY_ASSIGN(const auto text, line());
  const auto index = parse_number<std::uint32_t>(text);
  if (!index) {
    return corrupt("not a memo index: " + quote(text));
  }
  return *index;
}

Result<std::string_view> PickleMachine::line() {
  const std::size_t begin = reader_.position();
  const std::size_t end = pickle_.text_.bytes.find('\n', begin);
  if (end == std::string::npos) {
    return corrupt("a line without an end");
  }
  reader_.seek(end + 1);
  return std::string_view(pickle_.text_.bytes).substr(begin, end - begin);
}

Result<NodeId> PickleMachine::add(const PickleNode& node) {
  if (pickle_.nodes_.size() >= pickle_.text_.max_nodes) {
    return fail(ErrorCode::kUnsupported, "the pickle contains more than " +
                                             std::to_string(pickle_.text_.max_nodes) + " objects");
  }
  pickle_.nodes_.push_back(node);
  return static_cast<NodeId>(pickle_.nodes_.size() - 1);
}

Result<NodeId> PickleMachine::add_text(NodeKind kind, std::string_view view) {
  return add({.kind = kind,
              .first = static_cast<std::uint32_t>(view.data() - pickle_.text_.bytes.data()),
              .second = static_cast<std::uint32_t>(view.size())});
}

Result<NodeId> PickleMachine::add_decoded(const std::string& text) {
  const std::size_t position = pickle_.decoded_.size();
  pickle_.decoded_ += text;
  return add({.kind = NodeKind::kString,
              .first = static_cast<std::uint32_t>(position),
              .second = static_cast<std::uint32_t>(text.size()),
              .third = Pickle::kDecoded});
}

}  // namespace onnx_external
