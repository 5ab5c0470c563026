#include "checkpoint/pickle/pickle_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t kFirstRead = 512;  // most pickles of a stream are a few bytes
constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 20;
constexpr std::uint64_t kMinCut = 64;

// The number 0x1950a86a20f9469cfc6c that a legacy file pickles first, after PROTO and, in
// protocol 4, FRAME (torch/serialization.py, MAGIC_NUMBER).
constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
constexpr std::string_view kZipMagic = "PK\x03\x04"sv;

// The argument of an opcode: some bytes, a length and that many bytes, or lines.
struct Operand {
  std::uint8_t bytes = 0;  // of the value or of the length
  bool counted = false;
  std::uint8_t lines = 0;
};

// nullopt for a byte that is not an opcode. Lib/pickletools.py lists them.
std::optional<Operand> operand_of(char op) {
  if ("(.N\x88\x89)\x85\x86\x87t]}aesuR\x81"
      "bQ\x94\x93\x92\x8f\x90\x91"
      "012ldo\x97\x98"sv.find(op) != std::string_view::npos) {
    return Operand{};
  }
  if ("Kqh\x80\x82"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 1};
  }
  if ("M\x83"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 2};
  }
  if ("Jrj\x84"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 4};
  }
  if ("G\x95"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 8};
  }
  if ("ILFSVpgP"sv.find(op) != std::string_view::npos) {
    return Operand{.lines = 1};
  }
  if ("ci"sv.find(op) != std::string_view::npos) {
    return Operand{.lines = 2};
  }
  if ("\x8aU\x8c"
      "C"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 1, .counted = true};
  }
  if ("XBT\x8b"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 4, .counted = true};
  }
  if ("\x8d\x8e\x96"sv.find(op) != std::string_view::npos) {
    return Operand{.bytes = 8, .counted = true};
  }
  return std::nullopt;
}

bool is_byte_string(char op) {
  return "CB\x8e\x96"sv.find(op) != std::string_view::npos;
}

tl::unexpected<Error> too_short(std::uint64_t at, std::string_view what, std::uint64_t wanted,
                                std::uint64_t left) {
  return fail(ErrorCode::kCorrupt, "byte " + std::to_string(at) + ": cannot read " +
                                       std::string(what) + ": " + std::to_string(wanted) +
                                       " bytes are needed, but " + std::to_string(left) +
                                       " are left; copy or download the file again");
}

// Collects the text of one pickle up to its STOP. The parser reports faults in the text, so it gets
// everything up to the place where decoding stopped.
class Scanner {
 public:
  Scanner(const ReadSource& read, std::uint64_t begin, std::uint64_t end)
      : read_(read), next_(begin), end_(end) {
    text_.begin = begin;
  }

  [[nodiscard]] Result<PickleText> run() {
    bool more = true;
    while (more) {
      TRY(step(more));
    }
    text_.bytes.resize(at_);
    return std::move(text_);
  }

 private:
  // Collects one opcode and its argument.
  [[nodiscard]] Status step(bool& more) {
    more = false;
    TRY_ASSIGN(const bool has_opcode, have(1));
    if (!has_opcode) {
      return {};
    }
    const char op = text_.bytes[at_++];
    const auto operand = operand_of(op);
    if (op == '.' || !operand) {
      return {};
    }
    const std::size_t value = at_;
    TRY_ASSIGN(more, have(operand->bytes));
    for (std::uint8_t i = 0; i < operand->lines && more; ++i) {
      TRY_ASSIGN(more, skip_line());
    }
    at_ = more ? at_ + operand->bytes : text_.bytes.size();
    return more && operand->counted ? skip_counted(op, value, operand->bytes) : Status();
  }

  [[nodiscard]] Status skip_counted(char op, std::size_t value, std::uint8_t bytes) {
    std::uint64_t length = 0;
    std::memcpy(&length, text_.bytes.data() + value, bytes);
    const std::uint64_t left = end_ - text_.place(at_);
    if (length > left) {
      return too_short(text_.place(at_), "a string", length, left);
    }
    TRY(have(std::min(length, kLegacyHeadBytes)));
    const std::string_view content = std::string_view(text_.bytes).substr(at_);
    if (is_byte_string(op) && length >= kMinCut &&
        (is_legacy_torch(content) || content.starts_with(kZipMagic))) {
      next_ = text_.place(at_) + length;
      text_.cuts.push_back({at_, {next_ - length, length}});
      chunk_ = kFirstRead;  // bytes read ahead are discarded, so after a cut reads start small
      text_.bytes.resize(at_);
      return {};
    }
    TRY(have(length));
    at_ += static_cast<std::size_t>(length);
    return {};
  }

  [[nodiscard]] Result<bool> skip_line() {
    std::size_t from = at_;
    for (;;) {
      const std::size_t end = text_.bytes.find('\n', from);
      if (end != std::string::npos) {
        at_ = end + 1;
        return true;
      }
      from = text_.bytes.size();
      auto more = have(from - at_ + 1);
      if (!more || !*more) {
        return more;
      }
    }
  }

  // True if the text has `count` bytes from at_ on; reads more of the source if necessary.
  [[nodiscard]] Result<bool> have(std::uint64_t count) {
    while (text_.bytes.size() - at_ < count) {
      if (next_ == end_) {
        return false;
      }
      const std::size_t size = text_.bytes.size();
      const std::uint64_t wanted = std::min({end_ - next_, chunk_, kMaxPickleBytes + 1 - size});
      if (size > kMaxPickleBytes) {
        return fail(ErrorCode::kUnsupported, "byte " + std::to_string(text_.begin) +
                                                 ": a pickle of more than " +
                                                 std::to_string(kMaxPickleBytes) + " bytes");
      }
      text_.bytes.resize(size + static_cast<std::size_t>(wanted));
      TRY(read_(next_, std::as_writable_bytes(std::span(text_.bytes)).subspan(size)));
      next_ += wanted;
      chunk_ = std::min(2 * chunk_, kMaxRead);
    }
    return true;
  }

  const ReadSource& read_;
  std::uint64_t next_;  // position in the source after the bytes in text_
  std::uint64_t end_;
  std::uint64_t chunk_ = kFirstRead;
  std::size_t at_ = 0;  // in text_: behind the last opcode
  PickleText text_;
};

}  // namespace

bool is_legacy_torch(std::string_view head) {
  return head.starts_with('\x80') &&
         head.substr(0, kLegacyHeadBytes).find(kLegacyMagic) != std::string_view::npos;
}

PickleStream::PickleStream(const SourceFile& file)
    : PickleStream([&file](std::uint64_t offset,
                           std::span<std::byte> out) { return file.read(offset, out); },
                   0, file.size()) {}

Result<Pickle> PickleStream::next() {
  TRY_ASSIGN(auto text, Scanner(read_, position_, end_).run());
  const std::uint64_t behind = text.place(text.bytes.size());
  auto pickle = Pickle::parse(std::move(text));
  if (pickle) {
    position_ = behind;
  }
  return pickle;
}

Result<std::string> PickleStream::peek(std::uint64_t count) {
  std::string head(static_cast<std::size_t>(std::min(count, end_ - position_)), '\0');
  TRY(read_(position_, std::as_writable_bytes(std::span(head))));
  return head;
}

Status PickleStream::read(std::span<std::byte> out, std::string_view what) {
  if (out.size() > end_ - position_) {
    return too_short(position_, what, out.size(), end_ - position_);
  }
  auto status = read_(position_, out);
  position_ += out.size();
  return status;
}

Result<std::int64_t> PickleStream::read_int64(std::string_view what) {
  std::int64_t value = 0;
  TRY(read(std::as_writable_bytes(std::span(&value, 1)), what));
  return value;
}

Status PickleStream::skip(std::uint64_t length, std::string_view what) {
  if (length > end_ - position_) {
    return too_short(position_, what, length, end_ - position_);
  }
  position_ += length;
  return {};
}

}  // namespace onnx_external
