#include "checkpoint/gguf/gguf_cursor.h"

#include "base/bad_input.h"
#include "checkpoint/gguf/gguf_metadata.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kCursorBytes = std::uint64_t{64} << 10;

}  // namespace

Status GgufCursor::expect(std::uint64_t count, std::uint64_t each) const {
  if (count <= left() / each) {
    return {};
  }
  if (end_ < file_.size()) {
    return unsupported("metadata of more than " + std::to_string(kMaxGgufHeader) + " bytes");
  }
  return corrupt("byte " + std::to_string(at_) + ": " + std::to_string(count) +
                 (each == 1 ? " bytes" : " values of " + std::to_string(each) + " bytes or more") +
                 " should follow, but the file has " + std::to_string(left()) +
                 " bytes left; copy or download the file again");
}

Status GgufCursor::copy(std::span<std::byte> out) {
  TRY(expect(out.size(), 1));
  while (!out.empty()) {
    if (at_ < first_ || at_ - first_ >= buffer_.size()) {
      buffer_.resize(static_cast<std::size_t>(std::min(kCursorBytes, left())));
      TRY(file_.read(at_, buffer_));
      first_ = at_;
    }
    const auto from = std::span(buffer_).subspan(static_cast<std::size_t>(at_ - first_));
    const std::size_t count = std::min(from.size(), out.size());
    std::memcpy(out.data(), from.data(), count);
    out = out.subspan(count);
    at_ += count;
  }
  return {};
}

Status GgufCursor::skip(std::uint64_t bytes) {
  TRY(expect(bytes, 1));
  at_ += bytes;
  return {};
}

Result<std::string> GgufCursor::text(std::uint64_t most) {
  TRY_ASSIGN(const auto size, number<std::uint64_t>());
  TRY(expect(size, 1));
  if (size > most) {
    return unsupported("byte " + std::to_string(at_) + ": a name of " + std::to_string(size) +
                       " bytes; at most " + std::to_string(most) + " bytes are supported");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  TRY(copy(std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace onnx_external
