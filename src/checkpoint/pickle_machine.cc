#include "checkpoint/pickle_machine.h"

#include <bit>
#include <charconv>
#include <limits>
#include <utility>

#include "base/text.h"

namespace onnx_external {
namespace {

constexpr int kMaxProtocol = 5;
constexpr NodeId kNoneId = 0;  // made first, so that 0 can mean "no block" in chains
constexpr NodeId kFalseId = 1;
constexpr NodeId kTrueId = 2;
constexpr NodeId kEmptyTupleId = 3;

// An Error message without "FILE: byte N: opcode 'X'", which run() puts in front.
tl::unexpected<Error> corrupt(std::string what) {
  return fail(ErrorCode::kCorrupt, std::move(what));
}

std::string_view kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kNone:
      return "None";
    case NodeKind::kBool:
      return "a bool";
    case NodeKind::kInteger:
    case NodeKind::kBigInteger:
      return "an int";
    case NodeKind::kFloat:
      return "a float";
    case NodeKind::kString:
      return "a string";
    case NodeKind::kBytes:
      return "bytes";
    case NodeKind::kTuple:
      return "a tuple";
    case NodeKind::kList:
      return "a list";
    case NodeKind::kDict:
      return "a dict";
    case NodeKind::kSet:
      return "a set";
    case NodeKind::kGlobal:
      return "a global name";
    case NodeKind::kObject:
      return "an object";
    case NodeKind::kPersistent:
      return "a storage";
    case NodeKind::kBlock:
      break;
  }
  return "a block";
}

void put_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | ((code >> 18) & 0x07)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

// The number that all of `text` spells, if it does.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// The bits of the float that repr() spelled; those of a NaN for anything else.
std::int64_t float_bits(std::string_view text) {
  return std::bit_cast<std::int64_t>(
      parse_number<double>(text).value_or(std::numeric_limits<double>::quiet_NaN()));
}

// Undoes what Python's repr() of a str does; other escapes stay as they are.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char next = text[++i];
    const auto hex = next == 'x' ? parse_number<std::uint32_t>(text.substr(i + 1, 2), 16)
                                 : std::optional<std::uint32_t>();
    if (hex && i + 2 < text.size()) {
      out.push_back(static_cast<char>(*hex));
      i += 2;
    } else if (next == 'n' || next == 't' || next == 'r') {
      out.push_back(next == 'n' ? '\n' : next == 't' ? '\t' : '\r');
    } else if (next == '\\' || next == '\'' || next == '"') {
      out.push_back(next);
    } else {
      out.push_back('\\');
      out.push_back(next);
    }
  }
  return out;
}

// Python's raw-unicode-escape: latin-1 bytes, \uXXXX and \UXXXXXXXX.
std::string unescape_unicode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char kind = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::size_t digits = kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits != 0 && text.size() - i - 2 >= digits) {
      if (const auto code = parse_number<std::uint32_t>(text.substr(i + 2, digits), 16)) {
        put_utf8(out, *code);
        i += 1 + digits;
        continue;
      }
    }
    put_utf8(out, static_cast<unsigned char>(text[i]));
  }
  return out;
}

}  // namespace

Result<Pickle> Pickle::parse(std::string bytes) {
  if (bytes.size() > kMaxPickleBytes) {
    return fail(ErrorCode::kUnsupported, "pickle of " + std::to_string(bytes.size()) +
                                             " bytes is larger than the limit of " +
                                             std::to_string(kMaxPickleBytes));
  }
  return PickleMachine(std::move(bytes)).run();
}

PickleMachine::PickleMachine(std::string bytes) : reader_({}) {
  pickle_.bytes_ = std::move(bytes);
  pickle_.nodes_ = {{.kind = NodeKind::kNone},
                    {.kind = NodeKind::kBool, .number = 0},
                    {.kind = NodeKind::kBool, .number = 1},
                    {.kind = NodeKind::kTuple}};
}

Result<Pickle> PickleMachine::run() {
  // Nodes hold positions, not views: a short string's bytes move with the Pickle.
  reader_ = ByteReader(std::as_bytes(std::span(pickle_.bytes_)));
  while (!stopped_) {
    const std::size_t at = reader_.position();
    auto op = reader_.read<char>("an opcode");
    if (!op) {
      return corrupt("byte " + std::to_string(at) + ": the pickle ends without STOP");
    }
    if (auto status = step(*op); !status) {
      return fail_in("byte " + std::to_string(at) + ": opcode " + quote(std::string(1, *op)),
                     std::move(status).error());
    }
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
      const auto length = reader_.read<std::uint8_t>("a length");
      return length ? push_long(*length) : Status(fail(length.error()));
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
      const auto length = reader_.read<std::int32_t>("a length");
      if (!length) {
        return fail(length.error());
      }
      return *length < 0 ? Status(corrupt("negative length"))
                         : push_long(static_cast<std::uint64_t>(*length));
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
      const auto text = line();
      return text ? push_new({.kind = NodeKind::kFloat, .number = float_bits(*text)})
                  : Status(fail(text.error()));
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
      const auto index = index_line();
      return index ? put(*index) : Status(fail(index.error()));
    }
    case 'g': {  // GET
      const auto index = index_line();
      return index ? get(*index) : Status(fail(index.error()));
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
      return fail(ErrorCode::kUnsupported, "extension registry codes are not read");
    case '\x97':
    case '\x98':
      return fail(ErrorCode::kUnsupported, "out-of-band buffers are not read");
    case 'P':
      return fail(ErrorCode::kUnsupported, "persistent ids as text are not read");
    default:
      return corrupt("no such pickle opcode");
  }
}

template <typename Integer>
Status PickleMachine::push_integer() {
  const auto value = reader_.read<Integer>("an int");
  if (!value) {
    return fail(value.error());
  }
  return push_new({.kind = NodeKind::kInteger, .number = *value});
}

Status PickleMachine::push_long(std::uint64_t length) {
  const auto raw = reader_.take(length, "an int");
  if (!raw) {
    return fail(raw.error());
  }
  if (raw->size() > sizeof(std::int64_t)) {
    return push_new({.kind = NodeKind::kBigInteger});
  }
  const bool negative = !raw->empty() && (raw->back() & std::byte{0x80}) != std::byte{0};
  std::int64_t value = negative ? -1 : 0;
  std::memcpy(&value, raw->data(), raw->size());
  return push_new({.kind = NodeKind::kInteger, .number = value});
}

template <typename Length>
Status PickleMachine::push_counted(NodeKind kind) {
  const auto length = reader_.read<Length>("a length");
  if (!length) {
    return fail(length.error());
  }
  if (std::cmp_less(*length, 0)) {
    return corrupt("negative length");
  }
  const auto raw = reader_.take(static_cast<std::uint64_t>(*length), "a string");
  if (!raw) {
    return fail(raw.error());
  }
  return push(add_text(kind, {reinterpret_cast<const char*>(raw->data()), raw->size()}));
}

Status PickleMachine::push_float() {
  const auto bits = reader_.read<std::uint64_t>("a float");  // big-endian
  if (!bits) {
    return fail(bits.error());
  }
  return push_new(
      {.kind = NodeKind::kFloat, .number = static_cast<std::int64_t>(__builtin_bswap64(*bits))});
}

Status PickleMachine::push_text_integer() {
  auto text = line();
  if (!text) {
    return fail(std::move(text).error());
  }
  if (*text == "00" || *text == "01") {  // how protocol 0 spells bools
    return push(*text == "01" ? kTrueId : kFalseId);
  }
  if (text->ends_with('L')) {
    text->remove_suffix(1);
  }
  if (const auto value = parse_number<std::int64_t>(*text)) {
    return push_new({.kind = NodeKind::kInteger, .number = *value});
  }
  const std::string_view digits = text->substr(text->starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return corrupt("not an int: " + quote(*text));
  }
  return push_new({.kind = NodeKind::kBigInteger});
}

Status PickleMachine::push_text_string() {
  const auto text = line();
  if (!text) {
    return fail(text.error());
  }
  const bool quoted = text->size() >= 2 && (text->front() == '\'' || text->front() == '"') &&
                      text->back() == text->front();
  if (!quoted) {
    return corrupt("a string without quotes");
  }
  return push(add_decoded(unescape(text->substr(1, text->size() - 2))));
}

Status PickleMachine::push_text_unicode() {
  const auto text = line();
  return text ? push(add_decoded(unescape_unicode(*text))) : Status(fail(text.error()));
}

Status PickleMachine::check_protocol() {
  const auto version = reader_.read<std::uint8_t>("the protocol");
  if (!version) {
    return fail(version.error());
  }
  if (*version > kMaxProtocol) {
    return fail(ErrorCode::kUnsupported,
                "pickle protocol " + std::to_string(*version) + "; protocols 0 to 5 are read");
  }
  return {};
}

Status PickleMachine::check_frame() {
  const auto length = reader_.read<std::uint64_t>("a frame's length");
  if (!length) {
    return fail(length.error());
  }
  if (*length > reader_.remaining()) {
    return corrupt("a frame of " + std::to_string(*length) + " bytes, " +
                   std::to_string(reader_.remaining()) + " left");
  }
  return {};
}

Status PickleMachine::pop_into_tuple(std::size_t count) {
  if (auto status = need(count); !status) {
    return status;
  }
  return push(add_tuple(stack_.size() - count));
}

Status PickleMachine::collect_marked(NodeKind kind) {
  const auto from = take_mark();
  if (!from) {
    return fail(from.error());
  }
  if (kind == NodeKind::kTuple) {
    return push(add_tuple(*from));
  }
  const auto id = add({.kind = kind});
  if (!id) {
    return fail(id.error());
  }
  if (auto status = append_block(*id, kind, *from); !status) {
    return status;
  }
  return push(id);
}

Status PickleMachine::append_one() {
  if (auto status = need(2); !status) {
    return status;
  }
  return append_block(stack_[stack_.size() - 2], NodeKind::kList, stack_.size() - 1);
}

Status PickleMachine::append_marked(NodeKind target) {
  const auto from = take_mark();
  if (!from) {
    return fail(from.error());
  }
  const std::size_t fence = marks_.empty() ? 0 : marks_.back();
  if (*from == fence) {
    return corrupt("the stack holds nothing to add to");
  }
  return append_block(stack_[*from - 1], target, *from);
}

Status PickleMachine::set_item() {
  if (auto status = need(3); !status) {
    return status;
  }
  return append_block(stack_[stack_.size() - 3], NodeKind::kDict, stack_.size() - 2);
}

Status PickleMachine::global_from_lines() {
  const auto module = line();
  const auto name = module ? line() : module;
  if (!name) {
    return fail(name.error());
  }
  const auto module_id = add_text(NodeKind::kString, *module);
  const auto name_id = module_id ? add_text(NodeKind::kString, *name) : module_id;
  if (!name_id) {
    return fail(name_id.error());
  }
  return push_new({.kind = NodeKind::kGlobal, .first = *module_id, .second = *name_id});
}

Status PickleMachine::global_from_stack() {
  if (auto status = need(2); !status) {
    return status;
  }
  const NodeId name = stack_.back();
  const NodeId module = stack_[stack_.size() - 2];
  if (!pickle_.string(name) || !pickle_.string(module)) {
    return corrupt("a global's module and name must be strings");
  }
  stack_.resize(stack_.size() - 2);
  return push_new({.kind = NodeKind::kGlobal, .first = module, .second = name});
}

// REDUCE and NEWOBJ: callable, arguments. NEWOBJ_EX: and keyword arguments, kept as a state.
Status PickleMachine::call(std::size_t operands) {
  if (auto status = need(operands); !status) {
    return status;
  }
  const std::size_t from = stack_.size() - operands;
  const NodeKind callable = pickle_.kind(stack_[from]);
  if (callable != NodeKind::kGlobal && callable != NodeKind::kObject) {
    return corrupt("cannot call " + std::string(kind_name(callable)));
  }
  if (pickle_.kind(stack_[from + 1]) != NodeKind::kTuple) {
    return corrupt("arguments are not a tuple");
  }
  const auto object = add_object(stack_[from], stack_[from + 1]);
  if (!object) {
    return fail(object.error());
  }
  if (operands == 3) {
    if (auto status = append_block(*object, NodeKind::kObject, from + 2); !status) {
      return status;
    }
  }
  stack_.resize(from);
  return push(object);
}

// INST: module and name as lines, arguments from the mark. OBJ: class and arguments from the mark.
Status PickleMachine::call_marked(bool symbol_in_lines) {
  auto from = take_mark();
  if (!from) {
    return fail(std::move(from).error());
  }
  NodeId callable = 0;
  if (symbol_in_lines) {
    if (auto status = global_from_lines(); !status) {
      return status;
    }
    callable = stack_.back();
    stack_.pop_back();
  } else {
    if (*from == stack_.size()) {
      return corrupt("no class above the mark");
    }
    callable = stack_[(*from)++];
    if (pickle_.kind(callable) != NodeKind::kGlobal &&
        pickle_.kind(callable) != NodeKind::kObject) {
      return corrupt("cannot call " + std::string(kind_name(pickle_.kind(callable))));
    }
  }
  const auto arguments = add_tuple(*from);
  if (!arguments) {
    return fail(arguments.error());
  }
  if (!symbol_in_lines) {
    stack_.pop_back();  // the class
  }
  return push(add_object(callable, *arguments));
}

Status PickleMachine::build() {
  if (auto status = need(2); !status) {
    return status;
  }
  return append_block(stack_[stack_.size() - 2], NodeKind::kObject, stack_.size() - 1);
}

Status PickleMachine::persistent() {
  if (auto status = need(1); !status) {
    return status;
  }
  const NodeId id = stack_.back();
  stack_.pop_back();
  return push_new({.kind = NodeKind::kPersistent, .first = id});
}

Status PickleMachine::put(std::uint32_t index) {
  if (auto status = need(1); !status) {
    return status;
  }
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
  const auto index = reader_.read<Index>("a memo index");
  return index ? put(*index) : Status(fail(index.error()));
}

template <typename Index>
Status PickleMachine::get_read() {
  const auto index = reader_.read<Index>("a memo index");
  return index ? get(*index) : Status(fail(index.error()));
}

Result<std::uint32_t> PickleMachine::index_line() {
  const auto text = line();
  if (!text) {
    return fail(text.error());
  }
  const auto index = parse_number<std::uint32_t>(*text);
  if (!index) {
    return corrupt("not a memo index: " + quote(*text));
  }
  return *index;
}

Status PickleMachine::duplicate() {
  auto status = need(1);
  return status ? push(stack_.back()) : status;
}

Status PickleMachine::pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();  // POP on a mark takes the mark
    return {};
  }
  if (auto status = need(1); !status) {
    return status;
  }
  stack_.pop_back();
  return {};
}

Status PickleMachine::pop_to_mark() {
  const auto from = take_mark();
  if (!from) {
    return fail(from.error());
  }
  stack_.resize(*from);
  return {};
}

Status PickleMachine::stop() {
  if (auto status = need(1); !status) {
    return status;
  }
  pickle_.root_ = stack_.back();
  stopped_ = true;
  return {};
}

Status PickleMachine::need(std::size_t count) const {
  const std::size_t fence = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - fence < count) {
    return corrupt("the stack holds too few values");
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

Result<std::string_view> PickleMachine::line() {
  const std::size_t begin = reader_.position();
  const std::size_t end = pickle_.bytes_.find('\n', begin);
  if (end == std::string::npos) {
    return corrupt("a line without an end");
  }
  reader_.seek(end + 1);
  return std::string_view(pickle_.bytes_).substr(begin, end - begin);
}

Result<NodeId> PickleMachine::add(const PickleNode& node) {
  if (pickle_.nodes_.size() >= kMaxPickleNodes) {
    return fail(ErrorCode::kUnsupported,
                "the pickle holds more than " + std::to_string(kMaxPickleNodes) + " objects");
  }
  pickle_.nodes_.push_back(node);
  return static_cast<NodeId>(pickle_.nodes_.size() - 1);
}

Result<NodeId> PickleMachine::add_text(NodeKind kind, std::string_view view) {
  return add({.kind = kind,
              .first = static_cast<std::uint32_t>(view.size()),
              .number = view.data() - pickle_.bytes_.data()});
}

Result<NodeId> PickleMachine::add_decoded(const std::string& text) {
  const auto position = static_cast<std::int64_t>(pickle_.decoded_.size());
  pickle_.decoded_ += text;
  return add({.kind = NodeKind::kString,
              .first = static_cast<std::uint32_t>(text.size()),
              .second = 1,
              .number = position});
}

Result<NodeId> PickleMachine::add_tuple(std::size_t from) {
  const std::size_t first = pickle_.children_.size();
  const std::size_t count = stack_.size() - from;
  if (count == 0) {
    return kEmptyTupleId;
  }
  pickle_.children_.insert(pickle_.children_.end(),
                           stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  return add({.kind = NodeKind::kTuple,
              .first = static_cast<std::uint32_t>(first),
              .second = static_cast<std::uint32_t>(count)});
}

Result<NodeId> PickleMachine::add_object(NodeId callable, NodeId arguments) {
  const auto index = static_cast<std::int64_t>(pickle_.objects_.size());
  pickle_.objects_.emplace_back();
  return add({.kind = NodeKind::kObject, .first = callable, .second = arguments, .number = index});
}

// Takes the stack from `from` and adds it to `owner`: to its list (kList), set (kSet), dict items
// (kDict) or, for an object, states (kObject).
Status PickleMachine::append_block(NodeId owner, NodeKind part, std::size_t from) {
  const NodeKind kind = pickle_.kind(owner);
  if (kind != part && kind != NodeKind::kObject) {
    return corrupt("cannot add to " + std::string(kind_name(kind)) +
                   " what belongs to another type");
  }
  const std::size_t count = stack_.size() - from;
  if (part == NodeKind::kDict && count % 2 != 0) {
    return corrupt("a key without a value");
  }
  if (count == 0) {
    return {};
  }
  const std::size_t first = pickle_.children_.size();
  pickle_.children_.insert(pickle_.children_.end(),
                           stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  const auto block = add({.kind = NodeKind::kBlock,
                          .first = static_cast<std::uint32_t>(first),
                          .second = static_cast<std::uint32_t>(count)});
  if (!block) {
    return fail(block.error());
  }
  pickle_.link(owner, part, *block);
  return {};
}

Status PickleMachine::push(const Result<NodeId>& id) {
  if (!id) {
    return fail(id.error());
  }
  stack_.push_back(*id);
  return check_live();
}

// One opcode of a byte can add to any of these, and a compressed pickle costs its writer little.
Status PickleMachine::check_live() const {
  constexpr std::size_t kFarWeight = 8;  // what a tree's node takes beside a dense entry
  const std::size_t live = marks_.size() + stack_.size() + memo_.size() +
                           kFarWeight * far_memo_.size() + pickle_.children_.size();
  if (live > kMaxPickleReferences) {
    return fail(ErrorCode::kUnsupported, "the pickle holds more than " +
                                             std::to_string(kMaxPickleReferences) +
                                             " references to objects");
  }
  return {};
}

}  // namespace onnx_external
