#include "checkpoint/pickle/pickle_machine.h"

#include <algorithm>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/pickle/pickle_text.h"

namespace onnx_external {
namespace {

constexpr int kMaxProtocol = 5;

}  // namespace

Result<Pickle> Pickle::parse(std::string bytes) {
  return parse(PickleText{.bytes = std::move(bytes)});
}

Result<Pickle> Pickle::parse(PickleText text) {
  if (text.bytes.size() > kMaxPickleBytes) {
    return fail(ErrorCode::kUnsupported, "pickle of " + std::to_string(text.bytes.size()) +
                                             " bytes is larger than the limit of " +
                                             std::to_string(kMaxPickleBytes));
  }
  return PickleMachine(std::move(text)).run();
}

PickleMachine::PickleMachine(PickleText text) : reader_({}) {
  pickle_.text_ = std::move(text);
  // A state dict has a node per 7 bytes or so; reserving avoids copies of a growing list.
  constexpr std::size_t kBytesPerNode = 6;
  constexpr std::size_t kMostReserved = std::size_t{1} << 20;
  pickle_.nodes_.reserve(std::min(pickle_.text_.bytes.size() / kBytesPerNode, kMostReserved));
  pickle_.nodes_ = {{.kind = NodeKind::kNone},
                    PickleNode::of_number(NodeKind::kBool, 0),
                    PickleNode::of_number(NodeKind::kBool, 1),
                    {.kind = NodeKind::kTuple}};
}

Result<Pickle> PickleMachine::run() {
  // Nodes hold positions instead of views, because the bytes of a short string move with the
  // Pickle.
  reader_ = ByteReader(std::as_bytes(std::span(pickle_.text_.bytes)), pickle_.text_.begin);
  while (!stopped_) {
    const std::size_t at = reader_.position();
    auto op = reader_.read<char>("an opcode");
    if (!op) {
      return corrupt("byte " + std::to_string(pickle_.text_.place(at)) +
                     ": the pickle ends without STOP");
    }
    TRY_IN("byte " + std::to_string(pickle_.text_.place(at)) + ": opcode " +
               quote(std::string(1, *op)),
           step(*op));
  }
  return std::move(pickle_);
}

Status PickleMachine::step(char op) {
  switch (op) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return check_live();
    case '.':
      return stop();
    case 'N':
      return push(kNoneId);
    case '\x88':  // NEWTRUE
      return push(kTrueId);
    case '\x89':  // NEWFALSE
      return push(kFalseId);
    case 'J':  // BININT
      return push_integer<std::int32_t>();
    case 'K':  // BININT1
      return push_integer<std::uint8_t>();
    case 'M':  // BININT2
      return push_integer<std::uint16_t>();
    case '\x8a': {  // LONG1
      TRY_ASSIGN(const auto length, reader_.read<std::uint8_t>("a length"));
      return push_long(length);
    }
    case 'G':  // BINFLOAT
      return push_float();
    case 'X':  // BINUNICODE
      return push_counted<std::uint32_t>(NodeKind::kString);
    case ')':  // EMPTY_TUPLE
      return push(kEmptyTupleId);
    case '\x85':  // TUPLE1
      return pop_into_tuple(1);
    case '\x86':  // TUPLE2
      return pop_into_tuple(2);
    case '\x87':  // TUPLE3
      return pop_into_tuple(3);
    case 't':  // TUPLE
      return collect_marked(NodeKind::kTuple);
    case ']':  // EMPTY_LIST
      return push_new({.kind = NodeKind::kList});
    case '}':  // EMPTY_DICT
      return push_new({.kind = NodeKind::kDict});
    case 'a':  // APPEND
      return append_one();
    case 'e':  // APPENDS
      return append_marked(NodeKind::kList);
    case 's':  // SETITEM
      return set_item();
    case 'u':  // SETITEMS
      return append_marked(NodeKind::kDict);
    case 'c':  // GLOBAL
      return global_from_lines();
    case 'R':     // REDUCE
    case '\x81':  // NEWOBJ
      return call(2);
    case 'b':  // BUILD
      return build();
    case 'Q':  // BINPERSID
      return persistent();
    case 'q':  // BINPUT
      return put_read<std::uint8_t>();
    case 'r':  // LONG_BINPUT
      return put_read<std::uint32_t>();
    case 'h':  // BINGET
      return get_read<std::uint8_t>();
    case 'j':  // LONG_BINGET
      return get_read<std::uint32_t>();
    case '\x80':  // PROTO
      return check_protocol();
    default:
      return step_modern(op);
  }
}

Status PickleMachine::step_modern(char op) {
  switch (op) {
    case '\x95':  // FRAME
      return check_frame();
    case '\x94':  // MEMOIZE
      return put(static_cast<std::uint32_t>(memo_.size() + far_memo_.size()));
    case '\x8c':  // SHORT_BINUNICODE
      return push_counted<std::uint8_t>(NodeKind::kString);
    case '\x8d':  // BINUNICODE8
      return push_counted<std::uint64_t>(NodeKind::kString);
    case 'U':  // SHORT_BINSTRING: Python 2's str is text here, as torch reads it
      return push_counted<std::uint8_t>(NodeKind::kString);
    case 'T':  // BINSTRING
      return push_counted<std::int32_t>(NodeKind::kString);
    case 'C':  // SHORT_BINBYTES
      return push_counted<std::uint8_t>(NodeKind::kBytes);
    case 'B':  // BINBYTES
      return push_counted<std::uint32_t>(NodeKind::kBytes);
    case '\x8e':  // BINBYTES8
    case '\x96':  // BYTEARRAY8
      return push_counted<std::uint64_t>(NodeKind::kBytes);
    case '\x8b': {  // LONG4
      TRY_ASSIGN(const auto length, reader_.read<std::int32_t>("a length"));
      return length < 0 ? Status(corrupt("negative length"))
                        : push_long(static_cast<std::uint64_t>(length));
    }
    case '\x93':  // STACK_GLOBAL
      return global_from_stack();
    case '\x92':  // NEWOBJ_EX
      return call(3);
    case '\x8f':  // EMPTY_SET
      return push_new({.kind = NodeKind::kSet});
    case '\x90':  // ADDITEMS
      return append_marked(NodeKind::kSet);
    case '\x91':  // FROZENSET
      return collect_marked(NodeKind::kSet);
    case '0':
      return pop();
    case '1':
      return pop_to_mark();
    case '2':
      return duplicate();
    default:
      return step_text(op);
  }
}

Status PickleMachine::step_text(char op) {
  switch (op) {
    case 'I':
    case 'L':
      return push_text_integer();
    case 'F': {
      TRY_ASSIGN(const auto text, line());
      return push_new(PickleNode::of_number(NodeKind::kFloat, float_bits(text)));
    }
    case 'S':
      return push_text_string();
    case 'V':
      return push_text_unicode();
    case 'l':
      return collect_marked(NodeKind::kList);
    case 'd':
      return collect_marked(NodeKind::kDict);
    case 'i':  // INST
      return call_marked(true);
    case 'o':  // OBJ
      return call_marked(false);
    case 'p': {  // PUT
      TRY_ASSIGN(const auto index, index_line());
      return put(index);
    }
    case 'g': {  // GET
      TRY_ASSIGN(const auto index, index_line());
      return get(index);
    }
    default:
      return refuse(op);
  }
}

Status PickleMachine::refuse(char op) const {
  switch (op) {
    case '\x82':
    case '\x83':
    case '\x84':
      return fail(ErrorCode::kUnsupported, "extension registry codes are not supported");
    case '\x97':
    case '\x98':
      return fail(ErrorCode::kUnsupported, "out-of-band buffers are not supported");
    case 'P':
      return fail(ErrorCode::kUnsupported, "persistent ids in text form are not supported");
    default:
      return corrupt("no such pickle opcode");
  }
}

template <typename Integer>
Status PickleMachine::push_integer() {
  TRY_ASSIGN(const auto value, reader_.read<Integer>("an int"));
  return push_new(PickleNode::of_number(NodeKind::kInteger, value));
}

template <typename Length>
Status PickleMachine::push_counted(NodeKind kind) {
  TRY_ASSIGN(const auto length, reader_.read<Length>("a length"));
  if (std::cmp_less(length, 0)) {
    return corrupt("negative length");
  }
  if (is_cut(kind, static_cast<std::uint64_t>(length))) {
    return push_new(
        {.kind = kind, .first = static_cast<std::uint32_t>(next_cut_++), .third = Pickle::kCut});
  }
  TRY_ASSIGN(const auto raw, reader_.take(static_cast<std::uint64_t>(length), "a string"));
  return push(add_text(kind, {reinterpret_cast<const char*>(raw.data()), raw.size()}));
}

Status PickleMachine::check_protocol() {
  TRY_ASSIGN(const auto version, reader_.read<std::uint8_t>("the protocol"));
  if (version > kMaxProtocol) {
    return fail(ErrorCode::kUnsupported,
                "pickle protocol " + std::to_string(version) + "; protocols 0 to 5 are read");
  }
  return {};
}

Status PickleMachine::check_frame() {
  TRY_ASSIGN(const auto length, reader_.read<std::uint64_t>("a frame's length"));
  const std::uint64_t left =
      pickle_.text_.place(pickle_.text_.bytes.size()) - pickle_.text_.place(reader_.position());
  if (length > left) {
    return corrupt("a frame of " + std::to_string(length) + " bytes, but only " +
                   std::to_string(left) + " are left");
  }
  return {};
}

Status PickleMachine::put(std::uint32_t index) {
  TRY(need(1));
  if (index < memo_.size()) {
    memo_[index] = stack_.back();
    return {};
  }
  if (index == memo_.size() && !far_memo_.contains(index)) {
    memo_.push_back(stack_.back());
  } else {
    far_memo_[index] = stack_.back();
  }
  return check_live();
}

Status PickleMachine::get(std::uint32_t index) {
  if (index < memo_.size()) {
    return push(memo_[index]);
  }
  const auto found = far_memo_.find(index);
  if (found == far_memo_.end()) {
    return corrupt("memo " + std::to_string(index) + " was never set");
  }
  return push(found->second);
}

template <typename Index>
Status PickleMachine::put_read() {
  TRY_ASSIGN(const auto index, reader_.read<Index>("a memo index"));
  return put(index);
}

template <typename Index>
Status PickleMachine::get_read() {
  TRY_ASSIGN(const auto index, reader_.read<Index>("a memo index"));
  return get(index);
}

Status PickleMachine::duplicate() {
  TRY(need(1));
  return push(stack_.back());
}

Status PickleMachine::pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();  // POP on a mark takes the mark
    return {};
  }
  TRY(need(1));
  stack_.pop_back();
  return {};
}

Status PickleMachine::pop_to_mark() {
  TRY_ASSIGN(const auto from, take_mark());
  stack_.resize(from);
  return {};
}

Status PickleMachine::stop() {
  TRY(need(1));
  pickle_.root_ = stack_.back();
  stopped_ = true;
  return {};
}

Status PickleMachine::need(std::size_t count) const {
  const std::size_t fence = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - fence < count) {
    return corrupt("the stack has too few values");
  }
  return {};
}

Result<std::size_t> PickleMachine::take_mark() {
  if (marks_.empty()) {
    return corrupt("no mark on the stack");
  }
  const std::size_t from = marks_.back();
  marks_.pop_back();
  return from;
}

Status PickleMachine::too_many_references() const {
  return fail(ErrorCode::kUnsupported,
              "the pickle contains more than " +
                  std::to_string(kMaxReferencesPerNode * pickle_.text_.max_nodes) +
                  " references to objects");
}

}  // namespace onnx_external
