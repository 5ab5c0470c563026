#include "onnx/wire_scan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace onnx_external {
namespace {

enum class Kind : std::uint8_t {
  kModel,
  kTraining,
  kFunction,
  kGraph,
  kNode,
  kAttribute,
  kSparse,
  kTensor,
};

// Each message costs hundreds of bytes of memory, and a few bytes of the file can say that there is
// one. What exporters write has 20 bytes and more, names among them.
constexpr std::uint64_t kAlwaysMessages = 20'000;
constexpr std::uint64_t kLeastMessageBytes = 12;  // on average

struct Child {
  Kind parent;
  std::uint32_t field;
  Kind kind;
  bool once;  // not repeated: protobuf merges duplicates
};

// Every way to a TensorProto (tests/unit/onnx/schema_test.cc compares it with the schema). Twins of
// graphs merge by appending, so they need no care.
constexpr std::array<Child, 17> kChildren{{{Kind::kModel, 7, Kind::kGraph, false},
                                           {Kind::kModel, 20, Kind::kTraining, false},
                                           {Kind::kModel, 25, Kind::kFunction, false},
                                           {Kind::kTraining, 1, Kind::kGraph, false},
                                           {Kind::kTraining, 2, Kind::kGraph, false},
                                           {Kind::kFunction, 7, Kind::kNode, false},
                                           {Kind::kFunction, 11, Kind::kAttribute, false},
                                           {Kind::kGraph, 1, Kind::kNode, false},
                                           {Kind::kGraph, 5, Kind::kTensor, false},
                                           {Kind::kGraph, 15, Kind::kSparse, false},
                                           {Kind::kNode, 5, Kind::kAttribute, false},
                                           {Kind::kAttribute, 5, Kind::kTensor, true},
                                           {Kind::kAttribute, 6, Kind::kGraph, false},
                                           {Kind::kAttribute, 10, Kind::kTensor, false},
                                           {Kind::kAttribute, 11, Kind::kGraph, false},
                                           {Kind::kAttribute, 22, Kind::kSparse, true},
                                           {Kind::kAttribute, 23, Kind::kSparse, false}}};
constexpr std::array<Child, 2> kSparseChildren{
    {{Kind::kSparse, 1, Kind::kTensor, true}, {Kind::kSparse, 2, Kind::kTensor, true}}};

const Child* child_of(Kind parent, WireTag tag) {
  if (tag.type != WireType::kLength) {
    return nullptr;  // a known number of another type is an unknown field
  }
  const std::span<const Child> children =
      parent == Kind::kSparse ? std::span<const Child>(kSparseChildren) : kChildren;
  const auto found = std::find_if(children.begin(), children.end(), [&](const Child& child) {
    return child.parent == parent && child.field == tag.field;
  });
  return found == children.end() ? nullptr : &*found;
}

// Returns the wire type of an unpacked value in a data field; nullopt for a field without numbers.
std::optional<WireType> value_type(std::uint32_t field) {
  switch (field) {
    case kFloatData:
      return WireType::kFixed32;
    case kDoubleData:
      return WireType::kFixed64;
    case kInt32Data:
    case kInt64Data:
    case kUint64Data:
      return WireType::kVarint;
    default:
      return std::nullopt;
  }
}

bool is_data(WireTag tag) {
  const std::optional<WireType> single = value_type(tag.field);
  return (tag.type == WireType::kLength && (single || tag.field == kRawData)) ||
         (single && tag.type == *single);
}

class Scanner {
 public:
  Scanner(const WireInput& input, const WireFilter& filter)
      : reader_(input),
        filter_(filter),
        most_messages_(kAlwaysMessages + input.size() / kLeastMessageBytes) {}

  Result<WireScan> scan(std::uint64_t size) {
    if (!scan_message(Kind::kModel, size, 0)) {
      return fail(Error(reader_.status().error()));
    }
    return std::move(scan_);
  }

 private:
  // A message that is being read, and its index in the list once a tensor in it is listed.
  struct Open {
    WireMessage message;
    std::uint32_t listed = WireMessage::kNone;
  };

  static std::uint32_t place(std::uint64_t position) {
    return static_cast<std::uint32_t>(position);  // at most kMaxMessageBytes
  }

  // Recursion is safe here: its depth is bounded by kMaxMessageDepth.
  bool scan_message(Kind kind, std::uint64_t end, int depth) {
    if (depth > kMaxMessageDepth) {
      return reader_.stop(ErrorCode::kUnsupported, "messages are nested too deeply");
    }
    if (kind == Kind::kTensor) {
      return scan_tensor(end, depth);
    }
    std::uint32_t seen = 0;  // fields that may stand once
    while (reader_.position() < end) {
      WireTag tag;
      if (!reader_.tag(tag)) {
        return false;
      }
      const Child* child = child_of(kind, tag);
      const bool is_message =
          child != nullptr || (kind == Kind::kGraph && tag.type == WireType::kLength);
      if (is_message && !count_message()) {
        return false;
      }
      if (child == nullptr) {
        if (!reader_.skip_value(tag, depth)) {
          return false;
        }
        continue;
      }
      const std::uint32_t bit = child->once ? 1U << tag.field : 0U;
      if ((seen & bit) != 0) {
        return reader_.stop(ErrorCode::kUnsupported, "a message contains a tensor field twice");
      }
      seen |= bit;
      if (!scan_child(child->kind, end, depth)) {
        return false;
      }
    }
    return true;
  }

  bool count_message() {
    return ++messages_ <= most_messages_ ||
           reader_.stop(
               ErrorCode::kUnsupported,
               "more than " + std::to_string(most_messages_) +
                   " nodes, tensors and values, which is too many for a model of this size");
  }

  bool scan_child(Kind kind, std::uint64_t parent_end, int depth) {
    const std::uint64_t length_at = reader_.position();
    std::uint64_t bytes = 0;
    if (!reader_.length(bytes)) {
      return false;
    }
    if (bytes < filter_.least_bytes) {
      return reader_.skip(bytes);  // it has no room for a tensor that is listed
    }
    const std::uint64_t body = reader_.position();
    open_.push_back({{place(length_at), place(body), place(body + bytes)}});
    reader_.enter(body, body + bytes);
    if (!scan_message(kind, body + bytes, depth + 1)) {
      return false;
    }
    reader_.enter(body + bytes, parent_end);
    open_.pop_back();
    return true;
  }

  bool scan_tensor(std::uint64_t end, int depth) {
    const std::size_t first = scan_.segments.size();
    std::uint64_t bytes = 0;
    while (reader_.position() < end) {
      const std::uint64_t begin = reader_.position();
      WireTag tag;
      if (!reader_.tag(tag)) {
        return false;
      }
      if (!is_data(tag)) {
        if (!reader_.skip_value(tag, depth)) {
          return false;
        }
        continue;
      }
      if (!scan_data(tag, begin, first, bytes)) {
        return false;
      }
    }
    if (bytes < filter_.least_bytes || bytes > filter_.most_bytes || bytes == 0) {
      scan_.segments.resize(first);
      return true;
    }
    scan_.tensors.push_back({list_open(), place(first), place(scan_.segments.size() - first)});
    return true;
  }

  // Adds the field to the segments of the tensor, which start at `first`, and its payload to
  // `bytes`.
  bool scan_data(WireTag tag, std::uint64_t begin, std::size_t first, std::uint64_t& bytes) {
    WireSegment segment{place(begin), 0, 0, static_cast<std::uint8_t>(tag.field),
                        tag.type == WireType::kLength};
    segment.payload = place(reader_.position());
    if (segment.packed) {
      std::uint64_t length = 0;
      if (!reader_.length(length)) {
        return false;
      }
      segment.payload = place(reader_.position());
      if (!reader_.skip(length)) {
        return false;
      }
    } else if (!reader_.skip_value(tag, 0)) {
      return false;
    }
    segment.end = place(reader_.position());
    bytes += segment.end - segment.payload;
    if (!segment.packed && scan_.segments.size() > first) {
      WireSegment& last = scan_.segments.back();
      if (!last.packed && last.field == segment.field && last.end == segment.begin) {
        last.end = segment.end;
        return true;
      }
    }
    if (scan_.segments.size() - first == kMaxWireSegments) {
      return reader_.stop(
          ErrorCode::kUnsupported,
          "the data of a tensor is in more than " + std::to_string(kMaxWireSegments) + " segments");
    }
    scan_.segments.push_back(segment);
    return true;
  }

  // Lists the messages that are open now; the index of the innermost.
  std::uint32_t list_open() {
    std::uint32_t parent = WireMessage::kNone;
    for (Open& open : open_) {
      if (open.listed == WireMessage::kNone) {
        open.message.parent = parent;
        open.listed = place(scan_.messages.size());
        scan_.messages.push_back(open.message);
      }
      parent = open.listed;
    }
    return parent;
  }

  WireReader reader_;
  const WireFilter& filter_;
  std::uint64_t messages_ = 0;
  std::uint64_t most_messages_;
  std::vector<Open> open_;  // outermost first; without the model itself
  WireScan scan_;
};

// The new length of each message.
std::vector<std::uint64_t> new_lengths(const WireScan& scan, std::span<const WireEdit> edits) {
  std::vector<std::uint64_t> lengths;
  lengths.reserve(scan.messages.size());
  for (const WireMessage& message : scan.messages) {
    lengths.push_back(message.end - message.body);
  }
  for (const WireEdit& edit : edits) {
    lengths[edit.message] += edit.bytes;
    lengths[edit.message] -= edit.end - edit.begin;
  }
  // Parents come first, so each length is final before that of its parent.
  for (std::size_t i = lengths.size(); i-- > 0;) {
    const WireMessage& message = scan.messages[i];
    if (message.parent != WireMessage::kNone) {
      lengths[message.parent] += lengths[i] + varint_bytes(lengths[i]);
      lengths[message.parent] -= message.end - message.length_at;
    }
  }
  return lengths;
}

}  // namespace

void append_raw_data_header(std::string& out, std::uint64_t bytes) {
  append_length_header(out, kRawData, bytes);
}

Result<WireScan> scan_model(const WireInput& input, const WireFilter& filter) {
  if (input.size() > kMaxMessageBytes) {
    return fail(ErrorCode::kUnsupported, "more bytes than protobuf reads");
  }
  return Scanner(input, filter).scan(input.size());
}

Result<std::vector<WireStep>> rewrite(const WireScan& scan, std::span<const WireEdit> edits,
                                      std::uint64_t input_bytes) {
  const std::vector<std::uint64_t> lengths = new_lengths(scan, edits);
  std::vector<WireStep> steps;
  std::uint64_t position = 0;
  std::uint64_t total = 0;
  const auto add = [&](WireStep::Kind kind, std::uint64_t from, std::uint64_t bytes) {
    if (bytes > 0) {
      steps.push_back({kind, from, bytes});
      total += bytes;
    }
  };
  const auto copy_to = [&](std::uint64_t place) {
    add(WireStep::Kind::kCopy, position, place - position);
  };
  std::size_t message = 0;
  for (std::size_t edit = 0; edit <= edits.size(); ++edit) {
    const std::uint64_t next = edit < edits.size() ? edits[edit].begin : input_bytes;
    for (; message < scan.messages.size() && scan.messages[message].length_at < next; ++message) {
      copy_to(scan.messages[message].length_at);
      add(WireStep::Kind::kLength, lengths[message], varint_bytes(lengths[message]));
      position = scan.messages[message].body;
    }
    copy_to(next);
    if (edit < edits.size()) {
      add(WireStep::Kind::kEdit, edit, edits[edit].bytes);
      position = edits[edit].end;
    }
  }
  if (total > kMaxMessageBytes) {
    return message_too_large(total);
  }
  return steps;
}

}  // namespace onnx_external
